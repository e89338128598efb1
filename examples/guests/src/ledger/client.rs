//! The client's side.

use futures::Stream;
use hyper::{Uri, http::uri::PathAndQuery};
use hyper_util::client::legacy;
use tonic::{Request, Response, Status, Streaming, body::Body, client::Grpc};
use tonic_prost::ProstCodec;
use trapline::Foreign;

use super::{Balance, Deposit, path};
use crate::fetch::{Connector, pool};

/// A client of one server. Its clones have one connection in common.
#[derive(Clone, Debug)]
pub struct Client(Grpc<legacy::Client<Connector, Body>>);

type Codec = ProstCodec<Deposit, Balance>;

impl Client {
    /// A client of the server at this URL. It connects with the first call.
    pub fn new(foreign: &Foreign, origin: Uri) -> Self {
        Self(Grpc::with_origin(pool(*foreign, None, true), origin))
    }

    async fn ready(&mut self) -> Result<(), Status> {
        self.0
            .ready()
            .await
            .map_err(|error| Status::from_error(error.into()))
    }

    pub async fn deposit(&mut self, account: &str, amount: u64) -> Result<u64, Status> {
        self.ready().await?;
        let path = PathAndQuery::from_static(path::DEPOSIT);
        let request = Request::new(deposit(account, amount));
        let response: Response<Balance> = self.0.unary(request, path, Codec::default()).await?;
        Ok(response.into_inner().total)
    }

    /// The balance now, and after each of the next deposits, `count` in all.
    pub async fn watch(&mut self, account: &str, count: u64) -> Result<Streaming<Balance>, Status> {
        self.ready().await?;
        let path = PathAndQuery::from_static(path::WATCH);
        let request = Request::new(deposit(account, count));
        let response = self
            .0
            .server_streaming(request, path, Codec::default())
            .await?;
        Ok(response.into_inner())
    }

    pub async fn sum(
        &mut self,
        deposits: impl Stream<Item = Deposit> + Send + 'static,
    ) -> Result<u64, Status> {
        self.ready().await?;
        let path = PathAndQuery::from_static(path::SUM);
        let request = Request::new(deposits);
        let response: Response<Balance> = self
            .0
            .client_streaming(request, path, Codec::default())
            .await?;
        Ok(response.into_inner().total)
    }

    /// Each deposit is answered by the balance.
    pub async fn exchange(
        &mut self,
        deposits: impl Stream<Item = Deposit> + Send + 'static,
    ) -> Result<Streaming<Balance>, Status> {
        self.ready().await?;
        let path = PathAndQuery::from_static(path::EXCHANGE);
        let request = Request::new(deposits);
        let response = self.0.streaming(request, path, Codec::default()).await?;
        Ok(response.into_inner())
    }
}

pub(super) fn deposit(account: &str, amount: u64) -> Deposit {
    Deposit {
        account: account.to_string(),
        amount,
    }
}

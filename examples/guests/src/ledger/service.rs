//! The server's side.

use std::{
    collections::BTreeMap, convert::Infallible, future::Future, pin::Pin, sync::Arc, time::Duration,
};

use futures::{Stream, StreamExt, stream};
use hyper::{Request, Response, body::Incoming};
use tokio::sync::{RwLock, watch};
use tonic::{Status, Streaming, body::Body, server::Grpc};
use tonic_prost::ProstCodec;
use tower::service_fn;
use trapline::{Foreign, Os};

use super::{Balance, Deposit, path};

/// The balances.
#[derive(Clone, Debug)]
pub struct Accounts {
    balances: Arc<RwLock<BTreeMap<String, u64>>>,
    /// Counts the deposits.
    deposits: Arc<watch::Sender<u64>>,
    foreign: Foreign,
    is_racy: bool,
}

impl Accounts {
    pub fn new(foreign: Foreign, is_racy: bool) -> Self {
        Self {
            balances: Arc::default(),
            deposits: Arc::new(watch::Sender::new(0)),
            foreign,
            is_racy,
        }
    }

    async fn balance(&self, account: &str) -> u64 {
        self.balances
            .read()
            .await
            .get(account)
            .copied()
            .unwrap_or(0)
    }

    /// The time of a deposit, for books that are kept elsewhere.
    async fn stamp(&self) -> Duration {
        self.foreign.call(async |os: &mut Os| os.now().await).await
    }

    async fn deposit(&self, deposit: Deposit) -> Result<Balance, Status> {
        let Deposit { account, amount } = deposit;
        if account.is_empty() {
            return Err(Status::invalid_argument("a deposit names its account"));
        }
        let total = match self.is_racy {
            true => {
                let before = self.balance(&account).await;
                // Another deposit may come between.
                self.stamp().await;
                let total = before.saturating_add(amount);
                self.balances.write().await.insert(account, total);
                total
            }
            false => {
                self.stamp().await;
                let mut balances = self.balances.write().await;
                let balance = balances.entry(account).or_default();
                *balance = balance.saturating_add(amount);
                *balance
            }
        };
        self.deposits.send_modify(|count| *count += 1);
        Ok(Balance { total })
    }

    /// The balance now, and after each of the next deposits to any account.
    fn watch(self, account: String) -> impl Stream<Item = Result<Balance, Status>> + Send {
        let mut deposits = self.deposits.subscribe();
        deposits.mark_changed();
        let state = (self, account, deposits);
        stream::unfold(state, async |(accounts, account, mut deposits)| {
            deposits.changed().await.ok()?;
            let total = accounts.balance(&account).await;
            Some((Ok(Balance { total }), (accounts, account, deposits)))
        })
    }
}

type Answering = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>>>>;

/// The service of tower.
pub fn service(
    accounts: Accounts,
) -> impl tower::Service<
    Request<Incoming>,
    Response = Response<Body>,
    Error = Infallible,
    Future = Answering,
> + Clone {
    service_fn(move |request: Request<Incoming>| -> Answering {
        Box::pin(answered(accounts.clone(), request))
    })
}

async fn answered(
    accounts: Accounts,
    request: Request<Incoming>,
) -> Result<Response<Body>, Infallible> {
    let mut grpc = Grpc::new(ProstCodec::<Balance, Deposit>::default());
    let path = request.uri().path().to_string();
    Ok(match &*path {
        path::DEPOSIT => {
            let deposit = async |request: tonic::Request<Deposit>| {
                accounts
                    .deposit(request.into_inner())
                    .await
                    .map(tonic::Response::new)
            };
            grpc.unary(service_fn(deposit), request).await
        }
        path::WATCH => {
            let watch = async |request: tonic::Request<Deposit>| {
                let Deposit { account, amount } = request.into_inner();
                let balances = accounts.clone().watch(account).take(amount as usize);
                Ok::<_, Status>(tonic::Response::new(balances))
            };
            grpc.server_streaming(service_fn(watch), request).await
        }
        path::SUM => {
            let sum = async |request: tonic::Request<Streaming<Deposit>>| {
                let mut deposits = request.into_inner();
                let mut total = 0;
                while let Some(deposit) = deposits.message().await? {
                    total += accounts.deposit(deposit).await?.total;
                }
                Ok::<_, Status>(tonic::Response::new(Balance { total }))
            };
            grpc.client_streaming(service_fn(sum), request).await
        }
        path::EXCHANGE => {
            let exchange = async |request: tonic::Request<Streaming<Deposit>>| {
                let accounts = accounts.clone();
                let balances = request.into_inner().then(move |deposit| {
                    let accounts = accounts.clone();
                    async move { accounts.deposit(deposit?).await }
                });
                Ok::<_, Status>(tonic::Response::new(balances))
            };
            grpc.streaming(service_fn(exchange), request).await
        }
        _ => Status::unimplemented(path).into_http(),
    })
}

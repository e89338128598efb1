//! A case of a server: what a peer sends as bytes, what it receives, and what the service sees.

use std::{cell::RefCell, collections::VecDeque, error::Error as _, io, pin::pin, rc::Rc};

use futures::future::{Either, select};
use http_body_util::BodyExt;
use hyper::{
    HeaderMap, Request, Response, body::Incoming, server::conn::http1, service::service_fn,
};
use trapline::{Foreign, Os, TcpStream};

use crate::{
    message::{BoxBody, BoxError, Pairs, Reply, headers},
    world::{Outcome, World, accept, both},
};

#[derive(Clone, Debug)]
enum Step {
    Send(Vec<u8>),
    /// Sends to a server that has closed the connection, or finds it closed.
    SendInVain(Vec<u8>),
    Until(&'static str),
    End,
    Shut,
    Sleep(f64),
    Starts(&'static str),
    Ends(&'static str),
    Has(&'static str),
    Lacks(&'static str),
    Body(&'static str),
    Length(usize),
}

type Build = fn(&mut http1::Builder, World) -> &mut http1::Builder;
type IsRight = fn(&hyper::Error) -> bool;

/// How the connection's future ends.
#[derive(Clone, Copy)]
enum Serves {
    Well,
    Badly(IsRight),
    Somehow,
}

#[derive(Clone)]
pub struct Case {
    pub name: &'static str,
    builder: Build,
    replies: Vec<Reply>,
    steps: Vec<Step>,
    body: Option<Result<&'static [u8], &'static str>>,
    trailers: Pairs,
    serves: Serves,
    /// After how many seconds the server begins a graceful shutdown.
    shuts_after: Option<f64>,
    /// How many requests reach the service, at most.
    requests: usize,
}

/// What the service has seen of the first request.
#[derive(Default)]
struct Seen {
    requests: usize,
    body: Option<Result<Vec<u8>, String>>,
    trailers: HeaderMap,
}

pub fn case(name: &'static str) -> Case {
    Case {
        name,
        builder: |builder, _| builder,
        replies: Vec::new(),
        steps: Vec::new(),
        body: None,
        trailers: &[],
        serves: Serves::Well,
        shuts_after: None,
        requests: usize::MAX,
    }
}

impl Case {
    fn step(mut self, step: Step) -> Self {
        self.steps.push(step);
        self
    }

    pub fn built(mut self, builder: Build) -> Self {
        self.builder = builder;
        self
    }

    pub fn reply(mut self, reply: Reply) -> Self {
        self.replies.push(reply);
        self
    }

    pub fn send(self, bytes: impl Into<Vec<u8>>) -> Self {
        self.step(Step::Send(bytes.into()))
    }

    pub fn send_in_vain(self, bytes: impl Into<Vec<u8>>) -> Self {
        self.step(Step::SendInVain(bytes.into()))
    }

    /// Receives until what has come since the last send ends so.
    pub fn until(self, end: &'static str) -> Self {
        self.step(Step::Until(end))
    }

    /// Receives up to the end of the stream.
    pub fn until_end(self) -> Self {
        self.step(Step::End)
    }

    pub fn shut(self) -> Self {
        self.step(Step::Shut)
    }

    pub fn sleep(self, seconds: f64) -> Self {
        self.step(Step::Sleep(seconds))
    }

    pub fn starts(self, text: &'static str) -> Self {
        self.step(Step::Starts(text))
    }

    pub fn ends(self, text: &'static str) -> Self {
        self.step(Step::Ends(text))
    }

    pub fn has(self, text: &'static str) -> Self {
        self.step(Step::Has(text))
    }

    pub fn lacks(self, text: &'static str) -> Self {
        self.step(Step::Lacks(text))
    }

    /// What follows the first empty line.
    pub fn body(self, text: &'static str) -> Self {
        self.step(Step::Body(text))
    }

    pub fn length(self, length: usize) -> Self {
        self.step(Step::Length(length))
    }

    /// The service reads this body of the first request.
    pub fn reads(mut self, body: &'static str) -> Self {
        self.body = Some(Ok(body.as_bytes()));
        self
    }

    /// It fails to, by an error with this text.
    pub fn cannot_read(mut self, why: &'static str) -> Self {
        self.body = Some(Err(why));
        self.somehow()
    }

    pub fn trailers(mut self, trailers: Pairs) -> Self {
        self.trailers = trailers;
        self
    }

    /// No request reaches the service.
    pub fn unserved(mut self) -> Self {
        self.requests = 0;
        self
    }

    pub fn badly(mut self, is_right: IsRight) -> Self {
        self.serves = Serves::Badly(is_right);
        self
    }

    pub fn shuts_after(mut self, seconds: f64) -> Self {
        self.shuts_after = Some(seconds);
        self
    }

    pub fn somehow(mut self) -> Self {
        self.serves = Serves::Somehow;
        self
    }

    pub fn run(&self) {
        let (here, there) = (self.clone(), self.clone());
        both(
            self.name,
            async move |os, listener, world| {
                let stream = accept(os, &listener).await?;
                here.serve(os, stream, world).await
            },
            async move |os, addr, world| {
                let stream = os.connect(addr).await?;
                there.play(os, stream, world).await.map_err(Into::into)
            },
        );
    }

    async fn serve(self, os: &mut Os, stream: TcpStream, world: World) -> Outcome {
        let seen = Rc::new(RefCell::new(Seen::default()));
        let replies = RefCell::new(VecDeque::from(self.replies.clone()));
        let mut builder = http1::Builder::new();
        builder.timer(
            os.run_future(async |foreign: &Foreign| foreign.timer())
                .await,
        );
        (self.builder)(&mut builder, world);
        let result = os.run_future(async |foreign: &Foreign| {
            let service = service_fn(|request| {
                let reply = replies.borrow_mut().pop_front().unwrap_or_default();
                answer(*foreign, world, Rc::clone(&seen), reply, request)
            });
            let mut connection = pin!(builder.serve_connection(foreign.stream(stream), service));
            if let Some(seconds) = self.shuts_after {
                let over = select(connection.as_mut(), foreign.sleep(world.seconds(seconds))).await;
                assert!(
                    matches!(over, Either::Right(_)),
                    "{}: it has ended too early",
                    self.name
                );
                connection.as_mut().graceful_shutdown();
            }
            connection.await
        });
        let result = result.await;
        match (self.serves, &result) {
            (Serves::Well, Ok(())) | (Serves::Somehow, _) => {}
            (Serves::Badly(is_right), Err(error)) if is_right(error) => {}
            _ => return Err(format!("the connection ended by {result:?}").into()),
        }
        let seen = seen.take();
        if seen.requests > self.requests {
            return Err(format!("{} requests have reached the service", seen.requests).into());
        }
        match (self.body, seen.body) {
            (None, _) => {}
            (Some(Ok(expected)), Some(Ok(body))) if expected == body => {}
            (Some(Err(why)), Some(Err(error))) if error.contains(why) => {}
            (_, other) => return Err(format!("the service has read {other:?}").into()),
        }
        for (name, value) in &headers(self.trailers) {
            assert_eq!(seen.trailers.get(name), Some(value), "trailer {name}");
        }
        Ok(())
    }

    /// Plays the peer. Dropping the stream closes the connection.
    async fn play(self, os: &mut Os, stream: TcpStream, world: World) -> io::Result<()> {
        let mut got = Vec::new();
        for step in self.steps {
            let text = String::from_utf8_lossy(&got);
            let is_right = match &step {
                Step::Send(bytes) => {
                    got.clear();
                    stream.send_all(os, bytes).await.map(|()| true)?
                }
                Step::SendInVain(bytes) => {
                    got.clear();
                    // The first send may be taken before the reset arrives.
                    let sent = stream.send_all(os, bytes).await;
                    sent.is_err() || matches!(stream.recv(os, &mut [0; 64]).await, Ok(0) | Err(_))
                }
                Step::Until(end) => loop {
                    if got.ends_with(end.as_bytes()) {
                        break true;
                    }
                    if stream.recv_into(os, &mut got).await? == 0 {
                        break false;
                    }
                },
                Step::End => {
                    while stream.recv_into(os, &mut got).await? > 0 {}
                    true
                }
                Step::Shut => stream.shutdown_write(os).await.map(|()| true)?,
                Step::Sleep(seconds) => {
                    os.sleep(world.seconds(*seconds)).await;
                    true
                }
                Step::Starts(start) => text.starts_with(start),
                Step::Ends(end) => text.ends_with(end),
                Step::Has(part) => text.contains(part),
                Step::Lacks(part) => !text.contains(part),
                Step::Body(body) => text
                    .split_once("\r\n\r\n")
                    .is_some_and(|(_, rest)| rest == *body),
                Step::Length(length) => got.len() == *length,
            };
            assert!(
                is_right,
                "{step:?} does not hold for {:?}",
                String::from_utf8_lossy(&got)
            );
        }
        Ok(())
    }
}

async fn answer(
    foreign: Foreign,
    world: World,
    seen: Rc<RefCell<Seen>>,
    reply: Reply,
    request: Request<Incoming>,
) -> Result<Response<BoxBody>, BoxError> {
    seen.borrow_mut().requests += 1;
    let is_first = seen.borrow().requests == 1;
    if reply.ignores_body {
        drop(request);
    } else {
        let read = request.into_body().collect().await;
        let mut seen = seen.borrow_mut();
        if let (true, Ok(body)) = (is_first, &read) {
            seen.trailers = body.trailers().cloned().unwrap_or_default();
        }
        let body = read.map(|body| body.to_bytes().to_vec());
        let body =
            body.map_err(|error| format!("{error}: {:?}", error.source().map(ToString::to_string)));
        let failure = body.as_ref().err().cloned();
        if is_first {
            seen.body = Some(body);
        }
        if let Some(error) = failure {
            return Err(error.into());
        }
    }
    if reply.after > 0.0 {
        foreign.sleep(world.seconds(reply.after)).await;
    }
    match reply.fails {
        Some(reason) => Err(Box::new(h2::Error::from(reason))),
        None => Ok(reply.make()),
    }
}

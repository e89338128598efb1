//! Bodies and replies of cases.

use std::collections::VecDeque;

use bytes::Bytes;
use futures::stream;
use http_body_util::{BodyExt, Empty, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::{
    HeaderMap, Response, StatusCode, Version,
    body::Frame,
    ext::ReasonPhrase,
    header::{HeaderName, HeaderValue},
};

pub type BoxError = Box<dyn std::error::Error + Send + Sync>;
pub type BoxBody = UnsyncBoxBody<Bytes, BoxError>;
pub type Pairs = &'static [(&'static str, &'static str)];

#[derive(Clone, Debug, Default)]
pub enum Body {
    #[default]
    None,
    /// Of a length that is known.
    Known(&'static str),
    /// Of one that is not.
    Stream(Vec<Bytes>, Pairs),
}

pub fn streamed(text: &'static str) -> Body {
    Body::Stream(vec![text.into()], &[])
}

impl Body {
    pub fn make(self) -> BoxBody {
        match self {
            Self::None => Empty::new().map_err(|never| match never {}).boxed_unsync(),
            Self::Known(text) => Full::new(text.into())
                .map_err(|never| match never {})
                .boxed_unsync(),
            Self::Stream(parts, trailers) => {
                let mut frames: VecDeque<_> = parts.into_iter().map(Frame::data).collect();
                if !trailers.is_empty() {
                    frames.push_back(Frame::trailers(headers(trailers)));
                }
                StreamBody::new(stream::iter(frames.into_iter().map(Ok))).boxed_unsync()
            }
        }
    }
}

pub fn headers(pairs: Pairs) -> HeaderMap {
    let pairs = pairs.iter().map(|&(name, value)| {
        let name: HeaderName = name.parse().expect("a name");
        (name, HeaderValue::from_static(value))
    });
    let mut headers = HeaderMap::new();
    for (name, value) in pairs {
        headers.append(name, value);
    }
    headers
}

/// What a service answers.
#[derive(Clone, Debug, Default)]
pub struct Reply {
    pub status: Option<u16>,
    pub reason: Option<&'static str>,
    pub version: Option<Version>,
    pub headers: Pairs,
    pub body: Body,
    /// It answers after so many seconds.
    pub after: f64,
    /// The service drops the body of the request.
    pub ignores_body: bool,
    /// The service fails with an error of h2.
    pub fails: Option<h2::Reason>,
}

impl Reply {
    pub fn make(self) -> Response<BoxBody> {
        let mut response = Response::new(self.body.make());
        *response.status_mut() = self
            .status
            .map_or(StatusCode::OK, |code| code.try_into().unwrap());
        *response.headers_mut() = headers(self.headers);
        if let Some(version) = self.version {
            *response.version_mut() = version;
        }
        if let Some(reason) = self.reason {
            let reason = ReasonPhrase::try_from(reason.as_bytes()).expect("a reason");
            response.extensions_mut().insert(reason);
        }
        response
    }
}

pub fn reply(headers: Pairs, body: Body) -> Reply {
    Reply {
        headers,
        body,
        ..Reply::default()
    }
}

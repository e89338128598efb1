//! Cases of hyper's own tests of its HTTP/1 client (`tests/client.rs`): a request, the bytes that it
//! comes to, and what a peer's bytes come to. By their names there.

use http_body_util::BodyExt;
use hyper::{
    Error, Method, Request, Uri, Version,
    body::Body as _,
    client::conn::http1,
    header::{CONTENT_LENGTH, HOST, HeaderValue},
};
use trapline::Foreign;

use crate::{
    message::{Body, Pairs, headers, streamed},
    world::{accept, both},
};

/// `{addr}` in its texts means the address of the server.
#[derive(Clone)]
struct Case {
    name: &'static str,
    method: &'static str,
    uri: &'static str,
    version: Version,
    headers: Pairs,
    body: Body,
    builder: fn(&mut http1::Builder) -> &mut http1::Builder,
    /// Whether the request gets a host's header.
    has_host: bool,
    wire: String,
    reply: String,
    expected: Expected,
}

#[derive(Clone)]
enum Expected {
    Response {
        headers: Pairs,
        body: &'static str,
        trailers: Pairs,
    },
    Error(fn(&Error) -> bool),
}

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";

/// A request whose lines on the wire are these.
fn case(name: &'static str, method: &'static str, uri: &'static str, wire: &str) -> Case {
    Case {
        name,
        method,
        uri,
        version: Version::HTTP_11,
        headers: &[],
        body: Body::None,
        builder: |builder| builder,
        has_host: true,
        wire: wire.into(),
        reply: OK.into(),
        expected: Expected::Response {
            headers: &[],
            body: "",
            trailers: &[],
        },
    }
}

/// A plain one, which the peer answers so.
fn answered(name: &'static str, reply: impl Into<String>, body: &'static str) -> Case {
    let expected = Expected::Response {
        headers: &[],
        body,
        trailers: &[],
    };
    let wire = "GET / HTTP/1.1\r\nhost: {addr}\r\n\r\n";
    Case {
        reply: reply.into(),
        expected,
        ..case(name, "GET", "http://{addr}/", wire)
    }
}

fn refused(name: &'static str, reply: impl Into<String>, is_right: fn(&Error) -> bool) -> Case {
    Case {
        expected: Expected::Error(is_right),
        ..answered(name, reply, "")
    }
}

impl Case {
    fn with(self, headers: Pairs, body: Body) -> Self {
        Self {
            headers,
            body,
            ..self
        }
    }

    fn told(mut self, pairs: Pairs) -> Self {
        if let Expected::Response { headers, .. } = &mut self.expected {
            *headers = pairs;
        }
        self
    }

    fn ended(mut self, pairs: Pairs) -> Self {
        if let Expected::Response { trailers, .. } = &mut self.expected {
            *trailers = pairs;
        }
        self
    }

    fn run(self) {
        let (here, there, name) = (self.clone(), self.clone(), self.name);
        both(
            name,
            async move |os, listener, _| {
                let addr = listener_addr(os, &listener).await?;
                let stream = accept(os, &listener).await?;
                let wire = here.wire.replace("{addr}", &addr);
                let mut got = Vec::new();
                while got.len() < wire.len() && stream.recv_into(os, &mut got).await? > 0 {}
                assert_eq!(String::from_utf8_lossy(&got), wire, "{name}");
                // A client that has seen enough may have gone.
                let sent = stream.send_all(os, here.reply.as_bytes()).await;
                let may_fail = matches!(here.expected, Expected::Error(_));
                if may_fail {
                    Ok(())
                } else {
                    sent.map_err(Into::into)
                }
            },
            async move |os, addr, _| {
                let stream = os.connect(addr).await?;
                os.run_future(async |foreign: &Foreign| {
                    let mut builder = http1::Builder::new();
                    (there.builder)(&mut builder);
                    let (mut sender, connection) =
                        builder.handshake(foreign.stream(stream)).await?;
                    foreign.spawn("connection", async move { drop(connection.await) });
                    let response = sender.send_request(there.request(&addr.to_string())).await;
                    there.check(response).await
                })
                .await
            },
        );
    }

    /// The request, as a client sends it that knows its server: with a path only, or an authority.
    fn request(&self, addr: &str) -> Request<crate::message::BoxBody> {
        let uri: Uri = self.uri.replace("{addr}", addr).parse().expect("a URI");
        let target = match self.method {
            "CONNECT" => uri.authority().expect("an authority").as_str(),
            _ => uri.path_and_query().expect("a path").as_str(),
        };
        let mut request = Request::new(self.body.clone().make());
        *request.uri_mut() = target.parse().expect("a target");
        *request.method_mut() = Method::from_bytes(self.method.as_bytes()).expect("a method");
        *request.version_mut() = self.version;
        *request.headers_mut() = headers(self.headers);
        if self.has_host {
            let host = HeaderValue::from_str(addr).expect("a host");
            request.headers_mut().append(HOST, host);
        }
        request
    }

    async fn check(
        self,
        response: Result<hyper::Response<hyper::body::Incoming>, Error>,
    ) -> crate::world::Outcome {
        let name = self.name;
        let (expected, body, trailers) = match (self.expected, response) {
            (Expected::Error(is_right), Err(error)) => {
                assert!(is_right(&error), "{name}: {error:?}");
                return Ok(());
            }
            (Expected::Error(_), Ok(response)) => panic!("{name}: {response:?}"),
            (_, Err(error)) => panic!("{name}: {error:?}"),
            (
                Expected::Response {
                    headers,
                    body,
                    trailers,
                },
                Ok(response),
            ) => {
                assert_eq!(response.status(), 200, "{name}");
                for (key, value) in &crate::message::headers(headers) {
                    assert_eq!(response.headers().get(key), Some(value), "{name}: {key}");
                }
                (response, body, trailers)
            }
        };
        let length = expected
            .headers()
            .get(CONTENT_LENGTH)
            .and_then(|text| text.to_str().ok()?.parse().ok());
        if let (Some(length), true) = (length, self.method != "HEAD") {
            assert_eq!(expected.body().size_hint().exact(), Some(length), "{name}");
        }
        let read = expected.into_body().collect().await?;
        for (key, value) in &headers(trailers) {
            let got = read.trailers().and_then(|all| all.get(key));
            assert_eq!(got, Some(value), "{name}: trailer {key}");
        }
        assert_eq!(read.to_bytes(), body, "{name}");
        Ok(())
    }
}

/// The address under which the client knows the server.
async fn listener_addr(
    os: &mut trapline::Os,
    listener: &trapline::TcpListener,
) -> std::io::Result<String> {
    let addr = listener.local_addr()?;
    let name = if addr.ip().is_unspecified() {
        "server"
    } else {
        "127.0.0.1"
    };
    let ip = os.resolve(name).await?[0];
    Ok(std::net::SocketAddr::from((ip, addr.port())).to_string())
}

const CHUNKED: Pairs = &[("transfer-encoding", "chunked")];
const HELLO_CHUNK: &str = "5\r\nhello\r\n0\r\n\r\n";

fn sent_requests() -> Vec<Case> {
    let get = |name, wire: &str| case(name, "GET", "http://{addr}/", wire);
    let plain = "GET / HTTP/1.1\r\nhost: {addr}\r\n\r\n";
    let old = "HTTP/1.0 200 OK\r\ncontent-length: 0\r\n\r\n";
    vec![
        get("client_get", plain).told(&[("content-length", "0")]),
        case("client_get_query", "GET", "http://{addr}/foo?key=val#dont_send_me", "GET /foo?key=val HTTP/1.1\r\nhost: {addr}\r\n\r\n"),
        get("client_get_req_body_implicitly_empty", plain).with(&[], Body::Known("")),
        get("client_get_req_body_chunked", &("GET / HTTP/1.1\r\ntransfer-encoding: chunked\r\nhost: {addr}\r\n\r\n".to_string() + HELLO_CHUNK))
            .with(CHUNKED, Body::Known("hello")),
        get("client_transfer_encoding_repair", &("GET / HTTP/1.1\r\ntransfer-encoding: foo, chunked\r\nhost: {addr}\r\n\r\n".to_string() + HELLO_CHUNK))
            .with(&[("transfer-encoding", "foo")], Body::Known("hello")),
        Case {
            version: Version::HTTP_10,
            reply: old.into(),
            ..get("client_get_req_body_chunked_http10", "GET / HTTP/1.0\r\nhost: {addr}\r\ncontent-length: 5\r\n\r\nhello")
        }
        .with(CHUNKED, Body::Known("hello")),
        get("client_get_req_body_sized", "GET / HTTP/1.1\r\ncontent-length: 5\r\nhost: {addr}\r\n\r\nhello")
            .with(&[("content-length", "5")], streamed("hello")),
        get("client_get_req_body_unknown", plain).with(&[], streamed("hello")),
        Case {
            version: Version::HTTP_10,
            reply: old.into(),
            ..get("client_get_req_body_unknown_http10", "GET / HTTP/1.0\r\nhost: {addr}\r\n\r\n")
        }
        .with(CHUNKED, streamed("hello")),
        case("client_post_sized", "POST", "http://{addr}/length", "POST /length HTTP/1.1\r\ncontent-length: 7\r\nhost: {addr}\r\n\r\nfoo bar")
            .with(&[("content-length", "7")], Body::Known("foo bar")),
        case("client_post_chunked", "POST", "http://{addr}/chunks", "POST /chunks HTTP/1.1\r\ntransfer-encoding: chunked\r\nhost: {addr}\r\n\r\nB\r\nfoo bar baz\r\n0\r\n\r\n")
            .with(CHUNKED, Body::Known("foo bar baz")),
        case("client_post_unknown", "POST", "http://{addr}/chunks", "POST /chunks HTTP/1.1\r\nhost: {addr}\r\ntransfer-encoding: chunked\r\n\r\nB\r\nfoo bar baz\r\n0\r\n\r\n")
            .with(&[], streamed("foo bar baz")),
        case("client_post_empty", "POST", "http://{addr}/empty", "POST /empty HTTP/1.1\r\ncontent-length: 0\r\nhost: {addr}\r\n\r\n")
            .with(&[("content-length", "0")], Body::None),
        Case {
            reply: "HTTP/1.1 100 Continue\r\n\r\n".to_string() + OK,
            ..case("client_100_continue", "POST", "http://{addr}/continue", "POST /continue HTTP/1.1\r\ncontent-length: 7\r\nhost: {addr}\r\n\r\nfoo bar")
        }
        .with(&[("content-length", "7")], Body::Known("foo bar")),
        Case {
            reply: "HTTP/1.1 200 OK\r\n\r\n".into(),
            ..case("client_connect_method", "CONNECT", "{addr}", "CONNECT {addr} HTTP/1.1\r\nhost: {addr}\r\n\r\n")
        },
        Case {
            reply: "HTTP/1.1 200 OK\r\n\r\n".into(),
            ..case("client_connect_method_with_absolute_uri", "CONNECT", "http://{addr}", "CONNECT {addr} HTTP/1.1\r\nhost: {addr}\r\n\r\n")
        },
        Case {
            has_host: false,
            ..case("client_set_host_false", "GET", "http://{addr}/no-host/{addr}", "GET /no-host/{addr} HTTP/1.1\r\n\r\n")
        },
        Case {
            builder: |builder| builder.title_case_headers(true),
            ..get("client_set_http1_title_case_headers", "GET / HTTP/1.1\r\nX-Test-Header: test\r\nHost: {addr}\r\n\r\n")
        }
        .with(&[("x-test-header", "test")], Body::None),
    ]
}

const CHUNKY: Pairs = &[("chunky-trailer", "header data")];

fn trailers() -> Vec<Case> {
    let post = |name, trailer: &str| {
        let wire = format!(
            "POST / HTTP/1.1\r\ntrailer: {trailer}\r\nhost: {{addr}}\r\ntransfer-encoding: chunked\r\n\r\n\
             5\r\nhello\r\n0\r\nchunky-trailer: header data\r\n\r\n"
        );
        case(name, "POST", "http://{addr}/", &wire)
    };
    let body = || Body::Stream(vec!["hello".into()], CHUNKY);
    let chunks = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nTrailer: value\r\n";
    let te = |name, trailer: &str, last: &str| {
        let reply = format!(
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntrailer: {trailer}\r\n\r\n5\r\nhello\r\n0\r\n{last}\r\n"
        );
        let wire = "GET / HTTP/1.1\r\nte: trailers\r\nhost: {addr}\r\n\r\n".into();
        Case {
            wire,
            ..answered(name, reply, "hello")
        }
        .with(&[("te", "trailers")], Body::None)
        .told(CHUNKED)
    };
    let many: Pairs = &[
        ("chunky-trailer1", "header data1"),
        ("chunky-trailer2", "header data2"),
        ("chunky-trailer3", "header data3"),
        ("chunky-trailer4", "header data4"),
        ("chunky-trailer5", "header data5"),
        ("sneaky-trailer", "not in trailer header"),
        ("transfer-encoding", "chunked"),
        ("content-length", "5"),
        ("trailer", "foo"),
    ];
    let lines: String = many
        .iter()
        .map(|(name, value)| format!("{name}: {value}\r\n"))
        .collect();
    let named =
        "chunky-trailer1, chunky-trailer2, chunky-trailer3, chunky-trailer4, chunky-trailer5";
    let one = "chunky-trailer: header data\r\n";
    vec![
        answered(
            "client_get_req_body_chunked_with_trailer",
            format!("{chunks}\r\n"),
            "hello",
        ),
        answered(
            "client_get_req_body_chunked_with_multiple_trailers",
            format!("{chunks}another-trainer: another-value\r\n\r\n"),
            "hello",
        ),
        post(
            "client_post_req_body_chunked_with_trailer",
            "chunky-trailer",
        )
        .with(&[("trailer", "chunky-trailer")], body()),
        post(
            "client_post_req_body_chunked_with_trailer_titlecase",
            "Chunky-Trailer",
        )
        .with(&[("trailer", "Chunky-Trailer")], body()),
        te(
            "client_res_body_chunked_with_trailer",
            "chunky-trailer",
            one,
        )
        .ended(CHUNKY),
        te(
            "client_res_body_chunked_with_trailer_titlecase",
            "Chunky-Trailer",
            one,
        )
        .ended(CHUNKY),
        te(
            "client_res_body_chunked_with_pathological_trailers",
            named,
            &lines,
        )
        .ended(many),
    ]
}

fn answers() -> Vec<Case> {
    let long = "A".repeat(500_000);
    vec![
        Case {
            reply: "HTTP/1.1 200 OK\r\ncontent-Length: 11\r\n\r\nHello World".into(),
            ..case(
                "client_head_ignores_body",
                "HEAD",
                "http://{addr}/head",
                "HEAD /head HTTP/1.1\r\nhost: {addr}\r\n\r\n",
            )
        },
        answered(
            "client_response_transfer_encoding_not_chunked",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: yolo\r\n\r\nhallo",
            "hallo",
        )
        .told(&[("transfer-encoding", "yolo")]),
        answered("client_pipeline_responses_extra", OK.repeat(2), ""),
        refused(
            "client_error_unexpected_eof",
            "HTTP/1.1 200 OK\r\n",
            Error::is_incomplete_message,
        ),
        refused(
            "client_error_parse_version",
            "HEAT/1.1 200 OK\r\n\r\n",
            Error::is_parse,
        ),
        refused(
            "client_error_parse_too_large",
            format!("HTTP/1.1 200 OK\r\n{long}: {long}\r\n\r\n"),
            Error::is_parse_too_large,
        ),
        refused(
            "client_error_parse_status_out_of_range",
            "HTTP/1.1 001 OK\r\n\r\n",
            Error::is_parse_status,
        ),
        refused(
            "client_error_parse_status_syntactically_invalid",
            "HTTP/1.1 1 OK\r\n\r\n",
            Error::is_parse_status,
        ),
        answered(
            "client_handles_contentlength_values_on_same_line",
            "HTTP/1.1 200 OK\r\nContent-Length: 3,3\r\nContent-Length: 3,3\r\n\r\nabc\r\n",
            "abc",
        ),
        Case {
            builder: |builder| builder.http09_responses(true),
            ..answered(
                "client_allows_http09_when_requested",
                "Mmmmh, baguettes.",
                "Mmmmh, baguettes.",
            )
        },
        Case {
            builder: |builder| builder.allow_obsolete_multiline_headers_in_responses(true),
            ..answered(
                "client_obs_fold_headers",
                "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nFold: just\r\n some\r\n\t folding\r\n\r\n",
                "",
            )
        }
        .told(&[("fold", "just some folding")]),
    ]
}

/// Cases of `mod conn` there that differ in the request's target or the response only.
fn connections() -> Vec<Case> {
    let bare = |name, uri, wire: &str, reply: &str| Case {
        has_host: false,
        reply: reply.into(),
        ..case(name, "GET", uri, wire)
    };
    let a = "GET /a HTTP/1.1\r\n\r\n";
    vec![
        bare("get", "/a", a, OK),
        Case {
            expected: Expected::Response {
                headers: &[("content-length", "5")],
                body: "hello",
                trailers: &[],
            },
            ..bare(
                "incoming_content_length",
                "/",
                "GET / HTTP/1.1\r\n\r\n",
                "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
            )
        },
        Case {
            version: Version::HTTP_2,
            ..bare("http1_conn_coerces_http2_request", "/a", a, OK)
        },
    ]
}

fn run(cases: Vec<Case>, number: usize) {
    assert_eq!(cases.len(), number);
    cases.into_iter().for_each(Case::run);
}

#[test]
fn requests_on_the_wire() {
    run(sent_requests(), 18);
}

#[test]
fn trailers_there_and_back() {
    run(trailers(), 7);
}

#[test]
fn responses_that_are_read_and_refused() {
    run(answers(), 11);
}

#[test]
fn targets() {
    run(connections(), 3);
}

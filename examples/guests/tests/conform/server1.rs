//! Cases of hyper's own tests of its HTTP/1 server (`tests/server.rs`), by their names there.

use hyper::{Version, server::conn::http1};

use crate::{
    message::{Body, Reply, reply, streamed},
    scripted::{Case, case},
};

/// A request with these further lines.
fn head(line: &str, more: &str) -> String {
    format!("{line}\r\nHost: example.domain\r\n{more}\r\n")
}

fn get(more: &str) -> String {
    head("GET / HTTP/1.1", more)
}

const CLOSE: &str = "Connection: close\r\n";
const LENGTH_11: &[(&str, &str)] = &[("content-length", "11")];
const CHUNKED: &[(&str, &str)] = &[("transfer-encoding", "chunked")];
const FOO: &str = "foo bar baz";
const FOO_CHUNK: &str = "B\r\nfoo bar baz\r\n0\r\n\r\n";

/// How long a response is, by its headers and its body.
fn lengths() -> Vec<Case> {
    type Row = (
        &'static str,
        &'static str,
        &'static [(&'static str, &'static str)],
        Body,
        [bool; 2],
        &'static str,
    );
    let known = Body::Known(FOO);
    let rows: Vec<Row> = vec![
        (
            "fixed_response_known",
            "1.1",
            LENGTH_11,
            known.clone(),
            [false, true],
            FOO,
        ),
        (
            "fixed_response_unknown",
            "1.1",
            LENGTH_11,
            streamed(FOO),
            [false, true],
            FOO,
        ),
        (
            "fixed_response_known_empty",
            "1.1",
            &[("content-length", "0")],
            Body::Known(""),
            [false, true],
            "",
        ),
        (
            "chunked_response_known",
            "1.1",
            CHUNKED,
            known.clone(),
            [true, false],
            FOO_CHUNK,
        ),
        (
            "chunked_response_known_empty",
            "1.1",
            CHUNKED,
            Body::Known(""),
            [true, false],
            "0\r\n\r\n",
        ),
        (
            "chunked_response_unknown",
            "1.1",
            CHUNKED,
            streamed(FOO),
            [true, false],
            FOO_CHUNK,
        ),
        (
            "te_response_adds_chunked",
            "1.1",
            &[("transfer-encoding", "gzip")],
            streamed(FOO),
            [true, false],
            FOO_CHUNK,
        ),
        (
            "auto_response_with_unknown_length",
            "1.1",
            &[],
            streamed(FOO),
            [true, false],
            FOO_CHUNK,
        ),
        (
            "auto_response_with_known_length",
            "1.1",
            &[],
            known,
            [false, true],
            FOO,
        ),
        (
            "auto_response_known_empty",
            "1.1",
            &[],
            Body::Known(""),
            [false, true],
            "",
        ),
        (
            "http10_auto_response_with_unknown_length",
            "1.0",
            &[],
            streamed(FOO),
            [false, false],
            FOO,
        ),
        (
            "http10_chunked_response",
            "1.0",
            CHUNKED,
            streamed(FOO),
            [false, false],
            FOO,
        ),
    ];
    let cases = rows.into_iter().map(
        |(name, version, headers, body, [chunked, length], expected)| {
            let one = case(name)
                .reply(reply(headers, body))
                .send(head(&format!("GET / HTTP/{version}"), CLOSE))
                .until_end()
                .body(expected);
            let one = if chunked {
                one.has("transfer-encoding:").has("chunked\r\n")
            } else {
                one.lacks("transfer-encoding:")
            };
            if length {
                one.has("content-length:")
            } else {
                one.lacks("content-length:")
            }
        },
    );
    cases.collect()
}

fn requests() -> Vec<Case> {
    let post = |more: &str| format!("POST / HTTP/1.1\r\n{more}");
    vec![
        case("get_should_ignore_body")
            .send(get(CLOSE) + "I shouldn't be read.\r\n")
            .until("\r\n\r\n")
            .reads(""),
        case("get_with_body")
            .send(get("Content-Length: 19\r\n") + "I'm a good request.\r\n")
            .until("\r\n\r\n")
            .reads("I'm a good request.")
            .somehow(),
        case("post_with_content_length_body")
            .send(post("Content-Length: 5\r\n\r\nhello"))
            .until("\r\n\r\n")
            .reads("hello"),
        case("post_with_invalid_prefix_content_length")
            .send(post("Content-Length: +5\r\n\r\nhello"))
            .until("\r\n\r\n")
            .starts("HTTP/1.1 400 Bad Request\r\n")
            .unserved()
            .badly(hyper::Error::is_parse),
        case("post_with_chunked_body")
            .send(
                head("POST / HTTP/1.1", "Transfer-Encoding: chunked\r\n")
                    + "1\r\nq\r\n2\r\nwe\r\n2\r\nrt\r\n0\r\n\r\n",
            )
            .until("\r\n\r\n")
            .reads("qwert"),
        case("post_with_chunked_overflow")
            .send(
                head("POST / HTTP/1.1", "Transfer-Encoding: chunked\r\n")
                    + "f0000000000000003\r\nabc\r\n0\r\n\r\nGET /sneaky HTTP/1.1\r\n\r\n",
            )
            .until_end()
            .cannot_read("overflow"),
        case("post_with_incomplete_body")
            .send(head("POST / HTTP/1.1", "Content-Length: 10\r\n") + "12345")
            .shut()
            .until_end()
            .cannot_read(""),
        case("post_with_chunked_missing_final_digit")
            .send(head("POST / HTTP/1.1", "transfer-encoding: chunked\r\n") + "1\r\nZ\r\n\r\n\r\n")
            .until_end()
            .cannot_read(""),
        case("http_11_uri_too_long")
            .send(format!("GET /{} HTTP/1.1\r\n\r\n", "a".repeat(65534)))
            .until("\r\n\r\n")
            .starts("HTTP/1.1 414 URI Too Long\r\nconnection: close\r\ncontent-length: 0\r\n")
            .unserved()
            .badly(hyper::Error::is_parse),
        case("header_name_too_long")
            .send(format!(
                "GET / HTTP/1.1\r\n{}: foo\r\n\r\n",
                "x".repeat(64 * 1024)
            ))
            .until("\r\n\r\n")
            .starts("HTTP/1.1 431 Request Header Fields Too Large\r\n")
            .badly(hyper::Error::is_parse_too_large),
        case("parse_errors_send_4xx_response")
            .send("GE T / HTTP/1.1\r\n\r\n")
            .until("\r\n\r\n")
            .starts("HTTP/1.1 400 ")
            .badly(hyper::Error::is_parse),
        case("illegal_request_length_returns_400_response")
            .send(post("Content-Length: foo\r\n\r\n"))
            .until("\r\n\r\n")
            .starts("HTTP/1.1 400 ")
            .badly(hyper::Error::is_parse),
        case("max_buf_size")
            .built(|builder, _| builder.max_buf_size(16_000))
            .send(format!("POST /{}", "a".repeat(16_000)))
            .until("\r\n\r\n")
            .starts("HTTP/1.1 431 ")
            .badly(hyper::Error::is_parse_too_large),
        case("max_buf_size_split_header_boundary")
            .built(|builder, _| builder.max_buf_size(8192))
            .send(format!(
                "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nX: {}",
                "a".repeat(7000)
            ))
            .sleep(0.1)
            .send("a".repeat(5000) + "\r\n\r\n")
            .until_end()
            .starts("HTTP/1.1 431 ")
            .badly(hyper::Error::is_parse_too_large),
        case("empty_parse_eof_does_not_return_error"),
        case("nonempty_parse_eof_returns_error")
            .send("GET / HTTP/1.1")
            .badly(hyper::Error::is_incomplete_message),
    ]
}

fn responses() -> Vec<Case> {
    let status = |status, body| Reply {
        status: Some(status),
        body,
        ..Reply::default()
    };
    vec![
        case("get_response_custom_reason_phrase")
            .reply(Reply {
                reason: Some("Cool"),
                ..Reply::default()
            })
            .send(get(CLOSE))
            .until_end()
            .starts("HTTP/1.1 200 Cool\r\n")
            .body(""),
        case("head_response_can_send_content_length")
            .reply(reply(&[("content-length", "1024")], Body::None))
            .send(head("HEAD / HTTP/1.1", CLOSE))
            .until_end()
            .starts("HTTP/1.1 200 OK\r\n")
            .has("content-length: 1024\r\n")
            .body(""),
        case("head_response_doesnt_send_body")
            .reply(reply(&[], Body::Known(FOO)))
            .send(head("HEAD / HTTP/1.1", CLOSE))
            .until_end()
            .starts("HTTP/1.1 200 OK\r\n")
            .has("content-length: 11\r\n")
            .body(""),
        case("no_implicit_zero_content_length_for_head_responses")
            .reply(reply(&[], Body::Known("")))
            .send(head("HEAD / HTTP/1.1", CLOSE))
            .until_end()
            .lacks("content-length:"),
        case("response_does_not_set_chunked_if_body_not_allowed")
            .reply(Reply {
                headers: CHUNKED,
                ..status(304, Body::None)
            })
            .send(get(CLOSE))
            .until_end()
            .starts("HTTP/1.1 304 Not Modified\r\n")
            .lacks("transfer-encoding")
            .body(""),
        case("skips_content_length_for_304_responses")
            .reply(status(304, Body::Known("foo")))
            .send(get(CLOSE))
            .until_end()
            .lacks("content-length:"),
        case("skips_content_length_and_body_for_304_responses")
            .reply(status(304, Body::Known("foo")))
            .send(get(CLOSE))
            .until_end()
            .starts("HTTP/1.1 304 Not Modified\r\n")
            .lacks("content-length:")
            .body(""),
        case("returning_1xx_response_is_error")
            .reply(status(100, Body::None))
            .send("GET / HTTP/1.1\r\n\r\n")
            .until("\r\n\r\n")
            .starts("HTTP/1.1 500 ")
            .badly(hyper::Error::is_user),
        case("http_10_request_receives_http_10_response")
            .send("GET / HTTP/1.0\r\n\r\n")
            .until("\r\n\r\n")
            .starts("HTTP/1.0 200 OK\r\ncontent-length: 0\r\n"),
        case("streaming_body")
            .built(|builder, _| builder.keep_alive(false))
            .reply(reply(
                &[],
                Body::Stream(vec![vec![b'x'; 1000].into(); 100], &[]),
            ))
            .send("GET / HTTP/1.1\r\n\r\n")
            .until_end()
            .starts("HTTP/1.1 200 OK\r\n")
            .length(100_808),
        case("http1_response_with_http2_version")
            .reply(Reply {
                version: Some(Version::HTTP_2),
                ..Reply::default()
            })
            .send(get(""))
            .until("\r\n\r\n")
            .starts("HTTP/1.1 200 OK\r\n"),
    ]
}

fn lives() -> Vec<Case> {
    let eleven = || reply(LENGTH_11, Body::Known(FOO));
    let eight = || reply(&[("content-length", "8")], Body::Known("zar quux"));
    let twelve = || reply(&[("content-length", "12")], Body::Known("Hello World\n"));
    let last = head("GET /quux HTTP/1.1", CLOSE);
    vec![
        case("get_chunked_response_with_ka")
            .reply(reply(CHUNKED, Body::Known(FOO)))
            .reply(eight())
            .send(get("Connection: keep-alive\r\n"))
            .until("\r\nfoo bar baz\r\n0\r\n\r\n")
            .send(last.clone())
            .until_end()
            .ends("zar quux"),
        case("keep_alive")
            .reply(eleven())
            .reply(eight())
            .send(get(""))
            .until(FOO)
            .send(last)
            .until_end()
            .ends("zar quux"),
        case("http_10_keep_alive")
            .reply(eleven())
            .reply(eight())
            .send(head("GET / HTTP/1.0", "Connection: keep-alive\r\n"))
            .until(FOO)
            .has("connection: keep-alive\r\n")
            .send(head("GET /quux HTTP/1.0", ""))
            .until_end()
            .ends("zar quux"),
        case("http_10_close_on_no_ka")
            .reply(Reply { version: Some(Version::HTTP_10), ..eleven() })
            .send(head("GET / HTTP/1.0", "Connection: keep-alive\r\n"))
            .until_end()
            .ends(FOO)
            .lacks("connection: keep-alive\r\n"),
        case("disable_keep_alive")
            .built(|builder, _| builder.keep_alive(false))
            .reply(eleven())
            .send(get("Connection: keep-alive\r\n"))
            .until_end()
            .ends(FOO),
        case("header_connection_close")
            .reply(reply(&[("content-length", "11"), ("connection", "close")], Body::Known(FOO)))
            .send(get("Connection: keep-alive\r\n"))
            .until_end()
            .ends(FOO)
            .has("connection: close\r\n"),
        case("pipeline_disabled")
            .reply(twelve())
            .reply(twelve())
            .send(get("").repeat(2))
            .until("Hello World\n")
            .somehow(),
        case("pipeline_enabled")
            .built(|builder, _| builder.pipeline_flush(true))
            .reply(twelve())
            .reply(twelve())
            .send(get("") + &get(CLOSE))
            .until_end()
            .starts("HTTP/1.1 200 OK\r\ncontent-length: 12\r\n")
            .has("\r\n\r\nHello World\nHTTP/1.1 200 OK\r\ncontent-length: 12\r\nconnection: close\r\n")
            .ends("\r\n\r\nHello World\n"),
        case("http1_allow_half_close")
            .built(|builder, _| builder.half_close(true))
            .reply(Reply { after: 0.5, ..Reply::default() })
            .send("GET / HTTP/1.1\r\n\r\n")
            .shut()
            .until("\r\n\r\n")
            .starts("HTTP/1.1 200 OK\r\n"),
        case("disconnect_after_reading_request_before_responding")
            .built(|builder, _| builder.half_close(false))
            .reply(Reply { after: 2.0, ..Reply::default() })
            .send("GET / HTTP/1.1\r\n\r\n")
            .badly(|_| true),
    ]
}

fn continues() -> Vec<Case> {
    let post = |version: &str, more: &str| {
        let more = format!("{more}Connection: Close\r\n");
        head(&format!("POST /foo HTTP/{version}"), &more)
    };
    let hundred = "HTTP/1.1 100 Continue\r\n\r\n";
    vec![
        case("expect_continue_sends_100")
            .send(post("1.1", "Expect: 100-continue\r\nContent-Length: 5\r\n"))
            .until(hundred)
            .length(hundred.len())
            .send("hello")
            .until_end()
            .reads("hello"),
        case("expect_continue_accepts_upper_cased_expectation")
            .send(post("1.1", "Expect: 100-Continue\r\nContent-Length: 5\r\n"))
            .until(hundred)
            .length(hundred.len())
            .send("hello")
            .until_end()
            .reads("hello"),
        case("expect_continue_but_http_10_is_ignored")
            .send(post("1.0", "Expect: 100-Continue\r\nContent-Length: 5\r\n"))
            .send("hello")
            .until_end()
            .starts("HTTP/1.0 200 OK\r\n")
            .reads("hello"),
        case("expect_continue_but_no_body_is_ignored")
            .send(post("1.1", "Expect: 100-continue\r\n"))
            .until_end()
            .starts("HTTP/1.1 200 OK\r\n"),
        case("expect_continue_waits_for_body_poll")
            .reply(Reply {
                status: Some(400),
                after: 0.05,
                ignores_body: true,
                ..Reply::default()
            })
            .send(post(
                "1.1",
                "Expect: 100-continue\r\nContent-Length: 100\r\n",
            ))
            .until_end()
            .starts("HTTP/1.1 400 Bad Request\r\n"),
    ]
}

/// Times are in seconds, of which the real world has shorter ones.
fn timeouts() -> Vec<Case> {
    vec![
        case("header_read_timeout_slow_writes")
            .built(|builder, world| builder.header_read_timeout(world.seconds(5.0)))
            .send("GET / HTTP/1.1\r\n")
            .sleep(3.0)
            .send("Something: 1\r\n")
            .sleep(6.0)
            .send_in_vain("Works: 0\r\n\r\n")
            .unserved()
            .badly(hyper::Error::is_timeout),
        case("header_read_timeout_starts_immediately")
            .built(|builder, world| builder.header_read_timeout(world.seconds(2.0)))
            .sleep(3.0)
            .until_end()
            .length(0)
            .unserved()
            .badly(hyper::Error::is_timeout),
        // The time of a head begins with the end of the response before it.
        case("header_read_timeout_slow_writes_multiple_requests")
            .built(|builder, world| builder.header_read_timeout(world.seconds(5.0)))
            .send("GET / HTTP/1.1\r\n")
            .sleep(3.0)
            .send("Something: 1\r\n\r\n")
            .until("\r\n\r\n")
            .sleep(2.0)
            .send("GET / HTTP/1.1\r\n")
            .sleep(2.0)
            .send("Something: 1\r\n\r\n")
            .until("\r\n\r\n")
            .sleep(2.0)
            .send("GET / HTTP/1.1\r\nSomething: 1\r\n")
            .sleep(8.0)
            .send_in_vain("Works: 0\r\n\r\n")
            .badly(hyper::Error::is_timeout),
        case("header_read_timeout_as_idle_timeout")
            .built(|builder, world| builder.header_read_timeout(world.seconds(3.0)))
            .send("GET / HTTP/1.1\r\n\r\n")
            .until("\r\n\r\n")
            .sleep(6.0)
            .send_in_vain("GET / HTTP/1.1\r\n\r\n")
            .badly(hyper::Error::is_timeout),
    ]
}

fn shutdowns() -> Vec<Case> {
    let hello = || reply(&[], Body::Known("hello"));
    vec![
        case("disable_keep_alive_mid_request")
            .reply(hello())
            .shuts_after(1.0)
            .send("GET / HTTP/1.1\r\n")
            .sleep(2.0)
            .send("Host: localhost\r\n\r\n")
            .until_end()
            .starts("HTTP/1.1 200 OK\r\n")
            .has("connection: close\r\n"),
        case("disable_keep_alive_post_request")
            .reply(hello())
            .shuts_after(1.0)
            .send(get(""))
            .until("hello")
            .send("")
            .until_end()
            .length(0),
        case("graceful_shutdown_before_first_request_no_block")
            .shuts_after(0.0)
            .until_end()
            .length(0),
    ]
}

const TRAILER: &[(&str, &str)] = &[("chunky-trailer", "header data")];
const HELLO_TRAILER: &str = "5\r\nhello\r\n0\r\nchunky-trailer: header data\r\n\r\n";

fn trailers() -> Vec<Case> {
    let with = |headers, trailers| reply(headers, Body::Stream(vec!["hello".into()], trailers));
    let chunky = || {
        with(
            &[
                ("transfer-encoding", "chunked"),
                ("trailer", "chunky-trailer"),
            ],
            TRAILER,
        )
    };
    let more: &[(&str, &str)] = &[
        ("chunky-trailer", "header data"),
        ("host", "www.example.com"),
        ("foo", "bar"),
    ];
    let sent = head(
        "POST / HTTP/1.1",
        "trailer: chunky-trailer\r\ntransfer-encoding: chunked\r\n",
    ) + HELLO_TRAILER;
    let ok = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntrailer: chunky-trailer\r\n";
    vec![
        case("http1_trailer_send_fields")
            .reply(with(
                &[
                    ("transfer-encoding", "chunked"),
                    ("trailer", "chunky-trailer"),
                ],
                more,
            ))
            .send(get("Connection: keep-alive\r\nTE: trailers\r\n"))
            .until("\r\nchunky-trailer: header data\r\n\r\n")
            .starts(ok)
            .body(HELLO_TRAILER),
        case("http1_trailer_send_fields_titlecase")
            .reply(with(
                &[
                    ("transfer-encoding", "chunked"),
                    ("trailer", "Chunky-Trailer"),
                ],
                more,
            ))
            .send(get("Connection: keep-alive\r\nTE: trailers\r\n"))
            .until("\r\nchunky-trailer: header data\r\n\r\n")
            .starts("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntrailer: Chunky-Trailer\r\n")
            .body(HELLO_TRAILER),
        case("http1_trailer_fields_not_allowed")
            .reply(chunky())
            .send(get("Connection: keep-alive\r\n"))
            .until("\r\n0\r\n\r\n")
            .starts(ok)
            .body("5\r\nhello\r\n0\r\n\r\n"),
        case("http1_trailer_fields_allowed_with_comma_separated_te")
            .reply(chunky())
            .send(get("Connection: keep-alive\r\nTE: gzip, Trailers\r\n"))
            .until("\r\nchunky-trailer: header data\r\n\r\n")
            .body(HELLO_TRAILER),
        case("http1_trailer_fields_allowed_with_multiple_te_headers")
            .reply(chunky())
            .send(get(
                "Connection: keep-alive\r\nTE: gzip\r\nTE: trailers\r\n",
            ))
            .until("\r\nchunky-trailer: header data\r\n\r\n")
            .body(HELLO_TRAILER),
        case("http1_trailer_recv_fields")
            .send(sent.clone())
            .until("\r\n\r\n")
            .reads("hello")
            .trailers(TRAILER),
        case("http1_trailer_recv_keep_alive")
            .reply(reply(&[("content-length", "2")], Body::Known("ok")))
            .reply(reply(&[("content-length", "8")], Body::Known("zar quux")))
            .send(sent)
            .until("ok")
            .send(head("GET /quux HTTP/1.1", CLOSE))
            .until_end()
            .ends("zar quux")
            .reads("hello")
            .trailers(TRAILER),
    ]
}

fn run(cases: Vec<Case>, number: usize) {
    assert_eq!(cases.len(), number);
    cases.iter().for_each(Case::run);
}

#[test]
fn the_length_of_a_response() {
    run(lengths(), 12);
}

#[test]
fn requests_that_are_read_and_refused() {
    run(requests(), 16);
}

#[test]
fn responses_that_are_written() {
    run(responses(), 11);
}

#[test]
fn connections_that_live_and_end() {
    run(lives(), 10);
}

#[test]
fn requests_that_expect_100() {
    run(continues(), 5);
}

#[test]
fn requests_that_are_too_slow() {
    run(timeouts(), 4);
}

#[test]
fn connections_that_are_shut_down() {
    run(shutdowns(), 3);
}

#[test]
fn a_buffer_that_is_too_small_is_refused() {
    let with =
        |size| std::panic::catch_unwind(|| drop(http1::Builder::new().max_buf_size(size).clone()));
    // max_buf_size_panic_too_small, max_buf_size_no_panic
    assert!(with(8191).is_err());
    assert!(with(8193).is_ok());
}

#[test]
fn trailers_there_and_back() {
    run(trailers(), 7);
}

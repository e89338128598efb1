//! The status lines and the types of answers.

pub(super) type Status = &'static str;

pub(super) const OK: Status = "200 OK";
pub(super) const PART: Status = "206 Partial Content";
pub(super) const MOVED: Status = "301 Moved Permanently";
pub(super) const NOT_MODIFIED: Status = "304 Not Modified";
pub(super) const BAD_REQUEST: Status = "400 Bad Request";
pub(super) const FORBIDDEN: Status = "403 Forbidden";
pub(super) const NOT_FOUND: Status = "404 Not Found";
pub(super) const WRONG_METHOD: Status = "405 Method Not Allowed";
pub(super) const TOO_SLOW: Status = "408 Request Timeout";
pub(super) const NO_LENGTH: Status = "411 Length Required";
pub(super) const BODY_TOO_LONG: Status = "413 Content Too Large";
pub(super) const TARGET_TOO_LONG: Status = "414 URI Too Long";
pub(super) const PAST_THE_END: Status = "416 Range Not Satisfiable";
pub(super) const HEAD_TOO_LONG: Status = "431 Request Header Fields Too Large";
pub(super) const FAILED: Status = "500 Internal Server Error";
pub(super) const BUSY: Status = "503 Service Unavailable";
pub(super) const WRONG_VERSION: Status = "505 HTTP Version Not Supported";

pub(super) const TEXT: &str = "text/plain; charset=utf-8";
pub(super) const HTML: &str = "text/html; charset=utf-8";

//! Small programs that read text and print text: parts for a pipe.

pub(crate) mod cat;
pub(crate) mod grep;
pub(crate) mod head;
pub(crate) mod seq;
pub(crate) mod tee;
mod text;
pub(crate) mod wc;
pub(crate) mod yes;

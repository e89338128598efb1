//! Small programs for a shell: most of them read text and print text, as parts of a pipe.

pub(crate) mod cat;
pub(crate) mod grep;
pub(crate) mod head;
pub(crate) mod ls;
pub(crate) mod rm;
pub(crate) mod say;
pub(crate) mod seq;
pub(crate) mod tee;
mod text;
pub(crate) mod wc;
pub(crate) mod yes;

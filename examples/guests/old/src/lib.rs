//! The tests have the content: `tests/known.rs`.

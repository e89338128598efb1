//! Crates written for other runtimes, as guests of trapline.

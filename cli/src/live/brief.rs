//! Truncated texts.

/// The longest text in an answer. An answer has few texts, and JSON takes at most six bytes for a
/// letter. So no answer is longer than a client's buffer.
const TEXT: usize = 32 << 10;

/// The text as it is sent: truncated if it is long.
pub(super) fn brief(mut text: String) -> String {
    if text.len() > TEXT {
        let len = text.len();
        let cut = (0..=TEXT).rev().find(|&at| text.is_char_boundary(at));
        text.truncate(cut.unwrap_or(0));
        text += &format!("... ({len} bytes)");
    }
    text
}

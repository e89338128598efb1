//! Long texts, cut.

/// The longest text in an answer. There are few in each, and JSON takes six bytes for a letter at
/// most: no answer is longer than what clients have room for.
const TEXT: usize = 32 << 10;

/// A text as it is sent: of a long one, the beginning.
pub(super) fn brief(mut text: String) -> String {
    if text.len() > TEXT {
        let len = text.len();
        let cut = (0..=TEXT).rev().find(|&at| text.is_char_boundary(at));
        text.truncate(cut.unwrap_or(0));
        text += &format!("... ({len} bytes)");
    }
    text
}

//! Patterns of keys.

/// Ranges of bytes.
type Set = Vec<(u8, u8)>;

/// Returns whether a key is like this pattern of `*`, `?`, `[a-z]`, `[^a-z]` and `\`. It goes through
/// the pattern once, with all beginnings of the key that are like what came before.
pub(super) fn is_like(mut pattern: &[u8], key: &[u8]) -> bool {
    let mut likes = vec![false; key.len() + 1];
    likes[0] = true;
    while let Some(first) = pattern.first() {
        if *first == b'*' {
            let from = likes.iter().position(|like| *like).unwrap_or(likes.len());
            likes[from..].fill(true);
            pattern = &pattern[1..];
            continue;
        }
        let Some((set, is_not, len)) = item(pattern) else {
            return false;
        };
        let is_in = |byte: &u8| set.iter().any(|(from, to)| (from..=to).contains(&byte)) != is_not;
        for at in (0..key.len()).rev() {
            likes[at + 1] = likes[at] && is_in(&key[at]);
        }
        likes[0] = false;
        pattern = &pattern[len..];
    }
    likes[key.len()]
}

/// Returns the ranges of bytes that the first item of a pattern is, whether it is all others, and its length.
fn item(pattern: &[u8]) -> Option<(Set, bool, usize)> {
    match *pattern {
        [b'?', ..] => Some((Vec::new(), true, 1)),
        [b'\\', byte, ..] => Some((vec![(byte, byte)], false, 2)),
        [b'[', ref rest @ ..] => {
            let len = rest.iter().skip(1).position(|byte| *byte == b']')? + 1;
            let not = rest[..len].strip_prefix(b"^");
            let (mut set, mut ranges) = (not.unwrap_or(&rest[..len]), Vec::new());
            while let [from, rest @ ..] = set {
                let (to, rest) = match rest {
                    [b'-', to, rest @ ..] => (to, rest),
                    _ => (from, rest),
                };
                ranges.push((*from, *to));
                set = rest;
            }
            Some((ranges, not.is_some(), len + 2))
        }
        [byte, ..] => Some((vec![(byte, byte)], false, 1)),
        [] => None,
    }
}

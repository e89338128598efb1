//! Patterns of keys.

/// Returns whether a key is like this pattern of `*`, `?`, `[a-z]`, `[^a-z]` and `\`.
pub(super) fn is_like(mut pattern: &[u8], mut key: &[u8]) -> bool {
    // What follows the last star, and the first end of the key that was not yet tried with it.
    let mut star: Option<(&[u8], &[u8])> = None;
    loop {
        if let [b'*', behind @ ..] = pattern {
            star = Some((behind, key));
            pattern = behind;
        } else if let ([], []) = (pattern, key) {
            return true;
        } else if let [first, others @ ..] = key
            && let Some(behind) = one(pattern, *first)
        {
            (pattern, key) = (behind, others);
        } else if let Some((behind, [_, others @ ..])) = star {
            // The star is a byte longer.
            star = Some((behind, others));
            (pattern, key) = (behind, others);
        } else {
            return false;
        }
    }
}

/// Returns what follows the first item of a pattern, if the byte is like that.
fn one(pattern: &[u8], byte: u8) -> Option<&[u8]> {
    match pattern {
        [b'?', behind @ ..] => Some(behind),
        [b'[', rest @ ..] => {
            // One that is not closed ends with the pattern.
            let end = rest.iter().skip(1).position(|byte| *byte == b']');
            let len = end.map_or(rest.len(), |end| end + 1);
            let not = rest[..len].strip_prefix(b"^");
            let (mut set, mut is_in) = (not.unwrap_or(&rest[..len]), false);
            while let [from, others @ ..] = set {
                let (to, others) = match others {
                    [b'-', to, others @ ..] => (to, others),
                    _ => (from, others),
                };
                is_in |= (from.min(to)..=from.max(to)).contains(&&byte);
                set = others;
            }
            (is_in != not.is_some()).then(|| rest.get(len + 1..).unwrap_or_default())
        }
        [b'\\', literal, behind @ ..] | [literal, behind @ ..] => {
            (*literal == byte).then_some(behind)
        }
        [] => None,
    }
}

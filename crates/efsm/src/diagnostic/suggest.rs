// SPDX-License-Identifier: Apache-2.0 OR MIT
//! "Did you mean": names with a small edit distance to an unknown one.

/// Returns the name with the smallest edit distance to `found`, if it is within the limit.
pub(crate) fn did_you_mean<'a>(found: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let found = found.to_ascii_lowercase();
    let limit = match found.len() {
        0..=2 => 1,
        3..=5 => 2,
        _ => 3,
    };
    names
        .into_iter()
        .map(|name| (distance(&found, &name.to_ascii_lowercase()), name))
        .filter(|(distance, name)| *distance <= limit && *distance < name.len())
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

/// `` `a`, `b` and `c` ``; names after the first `most` are only counted.
pub(crate) fn list_names<'a>(names: impl IntoIterator<Item = &'a str>, most: usize) -> String {
    let names: Vec<String> = names.into_iter().map(|n| format!("`{n}`")).collect();
    if names.len() > most {
        return format!("{} and {} more", names[..most].join(", "), names.len() - most);
    }
    match names.split_last() {
        None => "none".to_owned(),
        Some((only, [])) => only.clone(),
        Some((last, rest)) => format!("{} and {last}", rest.join(", ")),
    }
}

/// Edit distance in bytes: insertions, deletions, replacements and swaps of adjacent bytes (optimal string alignment).
/// Names longer than 64 bytes are infinitely far apart.
fn distance(a: &str, b: &str) -> usize {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    if a.len() > 64 || b.len() > 64 {
        return usize::MAX;
    }
    let mut before_last: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let replace = last[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = replace.min(last[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(before_last[j - 2] + 1);
            }
            row.push(best);
        }
        before_last = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distance_counts_edits() {
        for (a, b, expected) in
            [("", "", 0), ("abc", "abc", 0), ("abc", "acb", 1), ("kitten", "sitting", 3), ("", "ab", 2)]
        {
            assert_eq!(distance(a, b), expected, "{a} to {b}");
            assert_eq!(distance(b, a), expected, "{b} to {a}");
        }
    }

    #[test]
    fn only_similar_names_are_suggested() {
        let names = ["ip.src", "ip.dst", "tcp.dport", "udp.dport"];
        assert_eq!(did_you_mean("ip.scr", names), Some("ip.src"));
        assert_eq!(did_you_mean("TCP.dport", names), Some("tcp.dport"));
        assert_eq!(did_you_mean("payload", names), None);
    }
}

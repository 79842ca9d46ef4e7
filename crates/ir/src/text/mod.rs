// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The textual form of dataflow.

mod parse;
mod render;

pub use parse::TextError;
pub(crate) use render::{BINARY, COMPARE};

#[cfg(test)]
#[allow(clippy::panic)]
mod tests {
    use crate::dataflow::Dataflow;

    const TEXT: &str = "program counted
map 0 counts array key 4 value 8 entries 4
call 0 map_lookup_elem map 0, read 4
call 1 fl_emit context, number, read 2, number, head, tail, kept, base, laid -2, byte 14
call 2 strtol read 1, number, number, changed 2
v0 16 @0 length
v1 32 @0 const 0x0
v2 8 @3 byte 12
v3 8 @3 byte 13
v4 16 @4 concat v2 v3
v5 16 @5 const 0x8
v6 1 @5 eq v4 v5
v7 8 @6 const 0x0
v8 64 @9 call 0 if v6: v2 v7 v7 v7
v9 64 @10 const 0x0
v10 64 @10 const 0x1
v11 64 @12 atomic fetch_add dw if v6: v8 v9 v10 v9
v12 32 @13 load w if v6: v8 v9
v13 0 @14 store w if v6: v8 v9 v12
v14 32 @15 select v6 v12 v1
v15 24 @16 bytes -3 v14
v16 16 @17 slice 4 v15
v17 32 @18 sign_extend v16
v18 1 @19 sbelow v17 v14
v19 1 @20 not v18
v20 32 @21 sar v17 v14
v21 64 @21 call 2 if v6: v2 v9 v9 v3 v2
v22 8 @21 changed 1 v21
verdict v20
head v1
tail v14
slow v6
kept v17
overlay v14
laid -2 v19 v2
packet -14 v7
wait v12: v11 v13
access v14 24 if v19
test v18 if v6
";

    #[test]
    fn text_round_trips() {
        let dataflow: Dataflow = TEXT.parse().unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(dataflow.to_string(), TEXT);
    }

    #[test]
    fn mistakes_are_named_with_their_line() {
        let wrong = |from: &str, to: &str| {
            let text = TEXT.replacen(from, to, 1);
            assert_ne!(text, TEXT, "{from}");
            text.parse::<Dataflow>().map(|_| ()).map_err(|error| error.to_string())
        };
        for (from, to, expected) in [
            ("v4 16 @4", "v4 17 @4", "line 10: v4 has 17 bits, expected 16"),
            ("v6 1 @5 eq v4 v5", "v6 1 @5 eq v4 v9", "line 12: found `v9`, expected a node before v6"),
            ("v7 8", "v8 8", "line 13: found `v8`, expected v7, each node in its order"),
            ("call 0 if v6:", "call 3 if v6:", "line 14: found `3`, expected the number of a call above"),
            ("load w", "load q", "line 18: found `q`, expected a size"),
            ("head v1\\n", "", "line 38: found the end of the line, expected `verdict`, `head`, `tail` and `slow`"),
            ("tail v14", "tail v99", "line 39: output `tail` refers to v99, expected a node below v23"),
            (
                "changed 1 v21",
                "changed 2 v21",
                "line 28: v22 is byte 2 of those that its call may write, expected one below 2",
            ),
            ("array", "heap", "line 2: found `heap`, expected a kind of map"),
            ("const 0x8", "const 8", "line 11: found `8`, expected a number such as `0x1f`"),
        ] {
            let from = from.replace("\\n", "\n");
            assert_eq!(wrong(&from, to), Err(expected.to_owned()), "{from} {to}");
        }
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tests of the formatter: line breaks, blank lines and comments.

#![allow(clippy::panic, reason = "tests stop")]

use super::format;

/// Formats twice, and checks that the second run changes nothing.
fn formatted(text: &str) -> String {
    let once = format("f.efsm", text).unwrap_or_else(|e| panic!("{text}: {:#?}", e.list));
    let twice = format("f.efsm", &once).unwrap_or_else(|e| panic!("{once}: {:#?}", e.list));
    assert_eq!(once, twice, "formatting twice changes something");
    once
}

#[test]
fn tokens_are_spaced() {
    let messy = "function   f ;param out:port=2;const n=- 3*( 4+ 5 );\nheader p after udp when udp.dport==1,udp.sport==1{a:u8;b:u8;}\n\
        stateful s{key biflow( ip.src,ip.dst );size 5;full evict lowest r;states a , b;reg r:u32 time( 1us )=0;\n\
        expire a->b( idle 5s );preload( 10.0.0.1,10.0.0.2 )->b{r=5;}\n\
        on a,b when!( ip.src in 10.0.0.0/ 8 )&&ip.ttl in 1 .. 5&&l4.dport in{80,443}&&- r<~n->a( idle 1s,hard 2s ){r=min( r,- 1 )- 1;emit( 2 )eth( dst=eth.src ,src=eth.dst )/ipv4( src=1.1.1.1,dst=1.1.1.1 )/icmp( type=8 );forward( n );}\n\
        otherwise{drop;}}";
    assert_eq!(
        formatted(messy),
        "function f;
param out: port = 2;
const n = -3 * (4 + 5);
header p after udp when udp.dport == 1, udp.sport == 1 { a: u8; b: u8; }
stateful s {
    key biflow(ip.src, ip.dst);
    size 5;
    full evict lowest r;
    states a, b;
    reg r: u32 time(1us) = 0;
    expire a -> b (idle 5s);
    preload (10.0.0.1, 10.0.0.2) -> b { r = 5; }
    on a, b when !(ip.src in 10.0.0.0/8) && ip.ttl in 1..5 && l4.dport in {80, 443} && -r < ~n -> a (idle 1s, hard 2s) {
        r = min(r, -1) - 1;
        emit(2) eth(dst = eth.src, src = eth.dst) / ipv4(src = 1.1.1.1, dst = 1.1.1.1) / icmp(type = 8);
        forward(n);
    }
    otherwise { drop; }
}
"
    );
}

#[test]
fn log_texts_are_unchanged() {
    let messy =
        "function f;stateless s{when tcp.is_syn{log( \"a  # b, \\n;\",ip.src ,-1 );alert(\"ö\" );drop;} # end\n}";
    let expected = "function f;
stateless s {
    when tcp.is_syn { log(\"a  # b, \\n;\", ip.src, -1); alert(\"ö\"); drop; }                 # end
}
";
    assert_eq!(formatted(messy), expected);
}

#[test]
fn line_breaks_of_the_author_are_kept() {
    let text = "function f;
stateless s {
  when ip.ttl == 1
  && ip.tos == 2 &&
    l4.sport
    == 5 { ip.ttl = 1; ip.tos
    = 3; drop; }
    when tcp.is_syn
    {
    ip.ttl = 3; ip.tos = 4;
    forward(
    5); }
  always { drop; }
}
";
    assert_eq!(
        formatted(text),
        "function f;
stateless s {
    when ip.ttl == 1
            && ip.tos == 2 &&
            l4.sport
            == 5 {
        ip.ttl = 1;
        ip.tos
                = 3;
        drop;
    }
    when tcp.is_syn {
        ip.ttl = 3; ip.tos = 4;
        forward(5);
    }
    always { drop; }
}
"
    );
}

#[test]
fn long_lines_break_before_their_parts() {
    let long = format!(
        "function f; stateful s {{ key ip.src; states a; on a when {} -> a (idle 1s) {{ emit(1) eth(dst = eth.src, src = eth.dst) / \
         ipv4(src = 192.168.100.100, dst = 192.168.100.101, ttl = 5) / udp(sport = 1000, dport = 1000); drop; }} }}",
        ["tcp.window == 1000"; 9].join(" && ")
    );
    let text = formatted(&long);
    assert_eq!(
        text,
        "function f;
stateful s {
    key ip.src;
    states a;
    on a when tcp.window == 1000 && tcp.window == 1000 && tcp.window == 1000 && tcp.window == 1000 && tcp.window == 1000
            && tcp.window == 1000 && tcp.window == 1000 && tcp.window == 1000 && tcp.window == 1000 -> a (idle 1s) {
        emit(1) eth(dst = eth.src, src = eth.dst) / ipv4(src = 192.168.100.100, dst = 192.168.100.101, ttl = 5)
                / udp(sport = 1000, dport = 1000);
        drop;
    }
}
"
    );
    let name = "x".repeat(90);
    let sum = formatted(&format!("function f; const {name} = {};", [name.as_str(); 4].join(" + ")));
    assert_eq!(sum.lines().count(), 6, "{sum}");
}

#[test]
fn comments_and_blank_lines_are_kept() {
    let text = "

# first

   # second
function f;   # name


param a: u8 = 1;     # one
param bcd: u8 = 2;  # two
                    # goes on
param e: u8 = 3;
#behind
stateful s {

   # inside
   key ip.src;# key
   states a,  # one
          b;  # two

   on a  # why
     when a == 1 { # opens

       # before
       drop; # drops
       # after

   } # closes
   on b { drop; } # other
   # last

} # end
stateless t { always { pass; } }

# the end
";
    assert_eq!(
        formatted(text),
        "# first

# second
function f;   # name

param a: u8 = 1;    # one
param bcd: u8 = 2;  # two
                    # goes on
param e: u8 = 3;
# behind
stateful s {
    # inside
    key ip.src;  # key
    states a,    # one
            b;   # two

    on a                   # why
            when a == 1 {  # opens
        # before
        drop;  # drops
        # after
    }               # closes
    on b { drop; }  # other
    # last
}  # end

stateless t {
    always { pass; }
}

# the end
"
        .replace("# behind", "#behind")
    );
}

#[test]
fn shared_comment_columns_are_kept() {
    let text = "function f;
param a: u8 = 1;              # one
param bcd: u8 = 2;            # two

param e: u8 = 1;              # one
param fgh: u8 = 2;           # two
";
    let expected = "function f;
param a: u8 = 1;              # one
param bcd: u8 = 2;            # two

param e: u8 = 1;    # one
param fgh: u8 = 2;  # two
";
    assert_eq!(formatted(text), expected);
}

#[test]
fn crlf_and_missing_line_ends_are_accepted() {
    assert_eq!(
        formatted("function f;\r\n# c\r\nparam a: u8 = 1; # d\r\n"),
        "function f;\n# c\nparam a: u8 = 1;  # d\n"
    );
    assert_eq!(formatted("# only"), "# only\n");
    assert_eq!(formatted(""), "");
    assert_eq!(formatted("function f; # c"), "function f;  # c\n");
}

#[test]
fn sources_with_syntax_errors_are_rejected() {
    for text in ["function f", "stateless s {", "function f; stateless s { always { drop } }", "function f; \"x\";"] {
        let errors = format("f.efsm", text);
        assert!(errors.is_err_and(|e| !e.list.is_empty()), "{text}");
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr)]

use std::io::Write as _;
use std::process::{Command, Stdio};

use flowloom_testkit::{Rng, sources};

use super::content::{self, Content};
use super::panel::{Line, Panel};
use super::place::{Extent, Link, place};
use super::text::{LINE, escape, lines, width};
use super::{Drawing, svg};
use crate::compile;
use crate::model::Function;

fn function(text: &str) -> Function {
    compile("drawn", text, &[]).unwrap_or_else(|e| panic!("{:?}", e.list)).0
}

/// The functions in `functions/`.
fn shipped() -> Vec<Function> {
    let sources = sources("../../functions");
    assert!(sources.len() >= 6, "{sources:?}");
    sources.iter().map(|(_, text)| function(text)).collect()
}

/// A random function of one element with many rows between its states.
fn tangle(rng: &mut Rng) -> Function {
    let states = 1 + rng.below(9);
    let names: Vec<String> = (0..states).map(|i| format!("s{i}{}", "x".repeat(rng.below(9)))).collect();
    let mut text = format!("function tangle; stateful t {{ key ip.src; states {}; reg r: u32;\n", names.join(", "));
    for row in 0..1 + rng.below(24) {
        let mut from: Vec<&String> = names.iter().filter(|_| rng.below(3) == 0).collect();
        if from.is_empty() {
            from.push(&names[rng.below(states)]);
        }
        let from: Vec<&str> = from.into_iter().map(String::as_str).collect();
        let next = match rng.below(3) {
            0 => "stay".to_owned(),
            1 => format!("-> {}", names[rng.below(states)]),
            _ => format!("-> {} (idle {}s)", names[rng.below(states)], 1 + rng.below(100)),
        };
        let more = if rng.below(2) == 0 { " && tcp.is_syn && ip.src != 10.0.0.1" } else { "" };
        text.push_str(&format!("on {} when r < {}{more} {next} {{ r += 1; drop; }}\n", from.join(", "), row + 1));
    }
    function(&format!("{text}}}"))
}

/// x, y, width, height.
type Rect = [f64; 4];

fn overlap(a: &Rect, b: &Rect) -> bool {
    a[0] < b[0] + b[2] - 0.1 && b[0] < a[0] + a[2] - 0.1 && a[1] < b[1] + b[3] - 0.1 && b[1] < a[1] + a[3] - 0.1
}

fn of_line(line: &Line) -> Rect {
    let width = width(&line.text);
    let left = if line.is_centred { line.x - width / 2.0 } else { line.x };
    // Glyphs extend 11 above and 3 below the baseline.
    [left, line.y - 11.0, width, 14.0]
}

/// Asserts that no text overlaps another, a node or the border of its panel, and that no edge crosses a text or a node.
fn assert_clear(name: &str, panel: &Panel) {
    let mut rects: Vec<(String, Rect)> = panel.lines.iter().map(|line| (line.text.clone(), of_line(line))).collect();
    for pill in &panel.pills {
        let rect = [pill.x - pill.width / 2.0, pill.y - pill.height / 2.0, pill.width, pill.height];
        rects.push((pill.names.join(" "), rect));
    }
    for (i, (text, rect)) in rects.iter().enumerate() {
        for (other, second) in &rects[..i] {
            assert!(!overlap(rect, second), "{name}: `{text}` {rect:?} is on `{other}` {second:?}");
        }
        let is_inside = rect[0] >= 0.0 && rect[0] + rect[2] <= panel.width && rect[1] + rect[3] <= panel.height;
        assert!(is_inside, "{name}: `{text}` {rect:?} is not in {} x {}", panel.width, panel.height);
    }
    for (points, _) in &panel.strokes {
        let is_forward = points[0].0 < points[points.len() - 1].0;
        for pair in points.windows(2) {
            let [from, to] = [pair[0], pair[1]];
            assert!(from.0 == to.0 || (from.0 < to.0) == is_forward, "{name}: {points:?}");
            // Curves lie between layers, where there are no items.
            let (left, top) = (from.0.min(to.0), from.1.min(to.1));
            let edge = match from.1 == to.1 {
                true => [left, top - 0.5, (to.0 - from.0).abs(), 1.0],
                false => [left, top, (to.0 - from.0).abs(), (to.1 - from.1).abs()],
            };
            for (text, rect) in &rects {
                assert!(!overlap(&edge, rect), "{name}: an edge runs through `{text}`: {edge:?}, {rect:?}");
            }
        }
    }
}

#[test]
fn drawn_items_do_not_overlap() {
    for function in shipped() {
        for content in content::of(&function) {
            [16, 26, 60].iter().for_each(|&columns| assert_clear(&function.name, &Panel::new(&content, columns)));
        }
    }
    let mut rng = Rng::from_env(0x6472_6177);
    for i in 0..120 {
        let function = tangle(&mut rng);
        for content in content::of(&function) {
            assert_clear(&format!("{i}: {}", function.source.text), &Panel::new(&content, 12 + rng.below(30)));
        }
    }
}

/// Each row is an edge, a self-loop or a table line; each edge reaches its state.
#[test]
fn every_row_and_timer_is_drawn() {
    for function in shipped() {
        for (content, element) in content::of(&function).iter().zip(&function.elements) {
            let Some(stateful) = &element.stateful else {
                assert_eq!(content.table.len(), element.rows.len() + 1, "{}", content.name);
                continue;
            };
            let states = stateful.states.len();
            let table: usize = content.table.len() - 1;
            let grouped: usize =
                content.arrows.iter().filter(|a| a.from >= states && !a.is_timer).map(|a| a.labels.len()).sum();
            let single: usize =
                content.arrows.iter().filter(|a| a.from < states && !a.is_timer).map(|a| a.labels.len()).sum();
            let loops: usize = content.nodes.iter().map(|node| node.loops.len()).sum();
            let shared = |row: &&crate::model::Row| row.states.len() >= 4 || row.states.len() == states && states > 1;
            let (many, few): (Vec<_>, Vec<_>) = element.rows.iter().partition(shared);
            assert_eq!(table + grouped, many.len(), "{}", content.name);
            assert_eq!(single + loops, few.iter().map(|row| row.states.len()).sum::<usize>(), "{}", content.name);
            for arrow in &content.arrows {
                assert!(arrow.from != arrow.to && arrow.to < states && arrow.from < content.nodes.len());
            }
        }
    }
}

#[test]
fn timers_lead_to_the_default_or_the_successor() {
    let text = "function f; stateful s { key ip.src; states a, b, c; expire b -> c (idle 5s);
                on a -> b (idle 1s, hard 90s) { drop; } on b -> b (idle 2m) { pass; } on c -> a (hard 7ms) { drop; } }";
    let contents = content::of(&function(text));
    let timers: Vec<(usize, usize, Vec<String>)> = contents[0]
        .arrows
        .iter()
        .filter(|arrow| arrow.is_timer)
        .map(|arrow| (arrow.from, arrow.to, arrow.labels.iter().flat_map(|label| label.conditions.clone()).collect()))
        .collect();
    let words = |words: &[&str]| words.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>();
    assert_eq!(timers, [(1, 2, words(&["idle 1s", "hard 90s", "idle 2m"])), (2, 0, words(&["idle 5s"]))]);
    // A timer of the initial state leads back to it.
    assert_eq!(contents[0].nodes[0].timers, ["hard 7ms"]);
}

#[test]
fn edges_run_from_layer_to_layer() {
    let node = Extent { width: 80.0, above: 20.0, below: 20.0, half: 40.0 };
    let link = |from, to| Link { from, to, label: Extent { width: 100.0, above: 20.0, below: 3.0, half: 0.0 } };
    // A chain in which every node has a back edge to the start.
    let mut links: Vec<Link> = (0..5).map(|i| link(i, i + 1)).collect();
    links.extend((1..6).map(|i| link(i, 0)));
    let placed = place(&[node; 6], &links);
    assert!(placed.nodes.windows(2).all(|pair| pair[0].0 + 80.0 < pair[1].0), "{:?}", placed.nodes);
    for (edge, link) in placed.edges.iter().zip(&links) {
        let (forward, ends) = (if link.from < link.to { 40.0 } else { -40.0 }, [edge[0], edge[edge.len() - 1]]);
        assert_eq!(ends.map(|end| end.0), [placed.nodes[link.from].0 + forward, placed.nodes[link.to].0 - forward]);
    }
}

#[test]
fn text_is_cut_to_lines() {
    let parts = |parts: &[&str]| parts.iter().map(|p| (*p).to_owned()).collect::<Vec<_>>();
    assert_eq!(lines(&parts(&["a == 1", "b == 2", "c == 3"]), " &&", 18, 9), ["a == 1 &&", "b == 2 && c == 3"]);
    assert_eq!(lines(&parts(&["left = a + b + c + d", "goto x"]), ";", 10, 9), ["left = a +", "b + c + d;", "goto x"]);
    assert_eq!(lines(&parts(&["aaaa", "bbbb", "cccc"]), ";", 5, 2), ["aaaa;", "bbb …"]);
    assert_eq!(lines(&parts(&["a_very_long_name_indeed"]), "", 8, 2), ["a_very_…"]);
    assert_eq!(lines(&[], "", 8, 2), Vec::<String>::new());
    assert!(width("mm") < 2.0 * LINE);
}

#[test]
fn special_characters_are_escaped() {
    assert_eq!(escape("a < b && c > \"d\"\u{1}"), "a &lt; b &amp;&amp; c &gt; &quot;d&quot;\u{fffd}");
    let function = function("function f; stateless s { when ip.ttl < 2 && ip.ttl > 0 { drop; } otherwise { pass; } }");
    let svg = Drawing::new(&function).svg().unwrap();
    assert!(svg.contains("ip.ttl &lt; 2 &amp;&amp; ip.ttl &gt; 0"), "{svg}");
    let title = "<title id=\"title\">f</title>\n<desc id=\"desc\">The elements of the network function f. s: 1 rows";
    assert!(svg.contains(title), "{svg}");
}

#[test]
fn drawings_that_are_too_large_are_refused() {
    let names: Vec<String> = (0..120).map(|i| format!("s{i}")).collect();
    let ring: String =
        (0..120).map(|i| format!("on s{i} when ip.ttl == 1 -> s{} {{ drop; }} ", (i + 1) % 120)).collect();
    let function = function(&format!("function f; stateful x {{ key ip.src; states {}; {ring}}}", names.join(", ")));
    let error = Drawing::new(&function).svg().unwrap_err().to_string();
    assert!(error.starts_with("element `x` has 240 states and arrows, expected at most 200"), "{error}");
    assert!(Drawing::new(&function).dot().contains("s119"));
    let element =
        |i| format!("stateful x{i} {{ key ip.src; states {}; otherwise {{ goto next; }} }} ", names.join(", "));
    let text: String = (0..9).map(element).collect();
    let function = self::function(&format!("function f; {text} stateless y {{ always {{ pass; }} }}"));
    let error = Drawing::new(&function).svg().unwrap_err().to_string();
    assert!(error.starts_with("function `f` has 1080 states and arrows, expected at most 1000; draw one"), "{error}");
}

#[test]
fn one_element_is_drawn_by_name() {
    let text =
        "function f; stateless one { always { goto next; } } stateful two { key ip.src; states a; on a { drop; } }";
    let function = function(text);
    let two = Drawing::of_element(&function, "two").unwrap().svg().unwrap();
    assert!(two.contains(">two</text>") && !two.contains(">one</text>"));
    assert!(Drawing::of_element(&function, "three").is_none());
}

#[test]
fn many_elements_are_arranged() {
    let mut text = "function f;".to_owned();
    (0..12).for_each(|i| text.push_str(&format!("stateful e{i} {{ key ip.src; states a; on a {{ goto next; }} }}")));
    text.push_str("stateless last { always { drop; } }");
    let function = function(&text);
    let contents: Vec<Content> = content::of(&function);
    let picture = svg::render("f", &contents);
    assert_eq!(picture.matches("class=\"card\"").count(), 13);
}

/// Graphviz parses the output and finds the same number of nodes and edges.
#[test]
fn graphviz_reads_the_graph() {
    let test = "graphviz_reads_the_graph";
    for function in shipped() {
        let dot = Drawing::new(&function).dot();
        let mut command = Command::new("dot");
        command.arg("-Tplain").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let Ok(mut child) = command.spawn() else {
            eprintln!("SKIP {test}: `dot` is not installed (graphviz)");
            return;
        };
        child.stdin.take().unwrap().write_all(dot.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && !stderr.contains("syntax"), "{}: {stderr}\n{dot}", function.name);
        let plain = String::from_utf8_lossy(&output.stdout);
        let edges = plain.lines().filter(|line| line.starts_with("edge ")).count();
        let nodes = plain.lines().filter(|line| line.starts_with("node ")).count();
        let contents = content::of(&function);
        let drawn = |content: &Content| {
            let loops =
                content.nodes.iter().map(|n| usize::from(!n.loops.is_empty()) + usize::from(!n.timers.is_empty()));
            content.arrows.len() + loops.sum::<usize>()
        };
        assert_eq!(edges, contents.iter().map(drawn).sum::<usize>(), "{}", function.name);
        assert_eq!(nodes, contents.iter().map(|c| c.nodes.len() + c.table.len()).sum::<usize>(), "{}", function.name);
    }
}

/// A row with alternatives is one edge, and the rows after it keep theirs.
#[test]
fn alternatives_share_an_arrow() {
    let function = function(
        "function f; stateful s { key ip.src; states a, b;
          on a when icmpx.is_echo_request { drop; }
          on a when tcp.is_syn || udp.dport == 53 -> b (idle 5s) { pass; }
          on b when tcp.is_rst { forget; pass; }
          otherwise { pass; } }",
    );
    assert!(function.elements[0].rows.len() > 3);
    let content = &content::of(&function)[0];
    let conditions = |labels: &[content::Label]| labels.iter().flat_map(|l| l.conditions.clone()).collect::<Vec<_>>();
    let arrow = |from, to| {
        let found = content.arrows.iter().find(|a| (a.from, a.to, a.is_timer) == (from, to, false));
        found.map(|arrow| conditions(&arrow.labels)).unwrap_or_default()
    };
    assert_eq!(conditions(&content.nodes[0].loops), ["icmpx.is_echo_request"]);
    assert_eq!(arrow(0, 1), ["tcp.is_syn || udp.dport == 53"]);
    assert_eq!(arrow(1, 0), ["tcp.is_rst"]);
}

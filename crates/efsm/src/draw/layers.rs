// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Layered graph drawing, from left to right [Sugiyama, Tagawa, Toda 1981].
//!
//! Nodes are in even layers, labels in odd ones; an edge has an item (label or waypoint) in each layer between its
//! ends. Items of a layer do not overlap. Edges of the same kind to the same node share the waypoints after their
//! labels.

/// Size of an item around its centre line.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Extent {
    pub(super) width: f64,
    pub(super) above: f64,
    pub(super) below: f64,
    /// Half the width of a node's outline, where edges end; may be less than half of `width`.
    pub(super) half: f64,
}

/// An edge from node to node, with its label.
#[derive(Debug, Clone, Copy)]
pub(super) struct Link {
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) label: Extent,
    /// Only edges of the same kind share waypoints.
    pub(super) kind: usize,
}

/// Segment of an edge, from left to right: straight, curve, straight.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Part {
    pub(super) points: [(f64, f64); 4],
    pub(super) kind: usize,
    /// The end of the segment with the arrowhead.
    pub(super) arrow: Option<End>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Left,
    Right,
}

/// Coordinates of the whole graph.
#[derive(Debug, Default)]
pub(super) struct Placed {
    /// Centre of each node.
    pub(super) nodes: Vec<(f64, f64)>,
    /// Centre line of each link's label, which lies on the edge.
    pub(super) labels: Vec<(f64, f64)>,
    pub(super) parts: Vec<Part>,
    pub(super) width: f64,
    pub(super) height: f64,
}

/// Vertical distance between items of a layer.
const ITEM_SPACING: f64 = 14.0;
/// Minimum and maximum distance between two layers.
const GAPS: (f64, f64) = (26.0, 64.0);
/// Vertical distance between edges on one side of a node.
pub(super) const PORT: f64 = 11.0;
const SWEEPS: usize = 24;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ItemKind {
    Node(usize),
    Label(usize),
    /// A waypoint of the edges to a node.
    Waypoint {
        to: usize,
        kind: usize,
    },
}

struct Item {
    what: ItemKind,
    layer: usize,
    extent: Extent,
    y: f64,
}

/// Connection of items in adjacent layers.
#[derive(Clone, Copy, PartialEq)]
struct Segment {
    left: usize,
    right: usize,
    kind: usize,
    arrow: Option<End>,
}

struct Layout {
    items: Vec<Item>,
    steps: Vec<Segment>,
    /// Items of each layer, in their vertical order.
    layers: Vec<Vec<usize>>,
}

/// Places nodes and links. The first node is the root, in the leftmost layer.
pub(super) fn place(nodes: &[Extent], links: &[Link]) -> Placed {
    let layer_of = layer_nodes(nodes.len(), links);
    let mut layout = Layout::new(nodes, links, &layer_of);
    layout.order();
    layout.align();
    layout.finish(nodes.len(), links)
}

/// For each node, the larger number of edges that end on its left or right side.
pub(super) fn ports(nodes: usize, links: &[Link]) -> Vec<usize> {
    let layer_of = layer_nodes(nodes, links);
    let layout = Layout::new(&vec![Extent::default(); nodes], links, &layer_of);
    let side = |node: usize, is_left: bool| {
        let end = |step: &&Segment| if is_left { step.right == node } else { step.left == node };
        layout.steps.iter().filter(end).count()
    };
    (0..nodes).map(|node| side(node, true).max(side(node, false))).collect()
}

/// Layer of each node: the longest path from a source, with back edges reversed.
fn layer_nodes(nodes: usize, links: &[Link]) -> Vec<usize> {
    let mut forward: Vec<(usize, usize)> = Vec::new();
    let mut seen = vec![0_u8; nodes];
    // The first node is a root, then the other sources, then any node not yet visited.
    let is_source = |node: &usize| links.iter().all(|link| link.to != *node);
    let roots = std::iter::once(0).chain((0..nodes).filter(is_source)).chain(0..nodes);
    for root in roots {
        if seen.get(root) != Some(&0) {
            continue;
        }
        // Depth-first search: a link to a node on the stack is a back edge.
        let mut stack = vec![(root, 0)];
        seen[root] = 1;
        while let Some((node, next)) = stack.pop() {
            let Some((i, link)) = links.iter().enumerate().skip(next).find(|(_, link)| link.from == node) else {
                seen[node] = 2;
                continue;
            };
            stack.push((node, i + 1));
            match seen[link.to] {
                // All edges to the first node count as back edges, so that it is leftmost.
                _ if link.to == 0 => forward.push((0, node)),
                1 => forward.push((link.to, node)),
                state => {
                    forward.push((node, link.to));
                    if state == 0 {
                        seen[link.to] = 1;
                        stack.push((link.to, 0));
                    }
                }
            }
        }
    }
    let mut layer_of = vec![0; nodes];
    for _ in 0..nodes {
        for &(from, to) in &forward {
            layer_of[to] = layer_of[to].max(layer_of[from] + 1);
        }
    }
    // Move sources other than the first node next to their nearest successor.
    for node in (0..nodes).filter(is_source).filter(|node| *node != 0) {
        let nearest = forward.iter().filter(|(from, _)| *from == node).map(|(_, to)| layer_of[*to]).min();
        layer_of[node] = nearest.map_or(layer_of[node], |layer| layer - 1);
    }
    layer_of
}

impl Layout {
    fn new(nodes: &[Extent], links: &[Link], layer_of: &[usize]) -> Layout {
        let item = |what, layer, extent| Item { what, layer, extent, y: 0.0 };
        let mut items: Vec<Item> =
            nodes.iter().enumerate().map(|(i, extent)| item(ItemKind::Node(i), 2 * layer_of[i], *extent)).collect();
        let mut steps: Vec<Segment> = Vec::new();
        for (i, link) in links.iter().enumerate() {
            let (from, to) = (2 * layer_of[link.from], 2 * layer_of[link.to]);
            let is_forward = from < to;
            // From the start of the edge to its end.
            let mut before = link.from;
            let mut layer = from;
            while layer != to {
                layer = if is_forward { layer + 1 } else { layer - 1 };
                let here = if layer == to {
                    link.to
                } else if layer.abs_diff(from) == 1 {
                    items.push(item(ItemKind::Label(i), layer, link.label));
                    items.len() - 1
                } else {
                    let what = ItemKind::Waypoint { to: link.to, kind: link.kind };
                    items.iter().position(|item| item.what == what && item.layer == layer).unwrap_or_else(|| {
                        let extent = Extent { above: 4.0, below: 4.0, ..Extent::default() };
                        items.push(item(what, layer, extent));
                        items.len() - 1
                    })
                };
                let arrow = (layer == to).then_some(if is_forward { End::Right } else { End::Left });
                let (left, right) = if is_forward { (before, here) } else { (here, before) };
                let step = Segment { left, right, kind: link.kind, arrow };
                if !steps.contains(&step) {
                    steps.push(step);
                }
                before = here;
            }
        }
        let count = items.iter().map(|item| item.layer + 1).max().unwrap_or(0);
        let mut layers = vec![Vec::new(); count];
        for (i, item) in items.iter().enumerate() {
            layers[item.layer].push(i);
        }
        Layout { items, steps, layers }
    }

    fn neighbours(&self, item: usize, to_the_left: bool) -> impl Iterator<Item = usize> {
        self.steps.iter().filter_map(move |step| match to_the_left {
            true => (step.right == item).then_some(step.left),
            false => (step.left == item).then_some(step.right),
        })
    }

    /// Orders the items of each layer to reduce crossings: barycenter heuristic in sweeps from left to right and back,
    /// then swaps of adjacent items.
    fn order(&mut self) {
        let mut best = (self.crossings(), self.layers.clone());
        for sweep in 0..SWEEPS {
            let to_the_left = sweep % 2 == 0;
            let count = self.layers.len();
            for i in 0..count {
                let layer = if to_the_left { i } else { count - 1 - i };
                let places = self.places();
                let mut keyed: Vec<(f64, usize)> = self.layers[layer]
                    .iter()
                    .map(|&item| {
                        let near: Vec<f64> = self.neighbours(item, to_the_left).map(|n| places[n]).collect();
                        let mean = near.iter().sum::<f64>() / near.len() as f64;
                        (if near.is_empty() { places[item] } else { mean }, item)
                    })
                    .collect();
                keyed.sort_by(|a, b| a.0.total_cmp(&b.0));
                self.layers[layer] = keyed.into_iter().map(|(_, item)| item).collect();
            }
            self.swap_adjacent();
            let crossings = self.crossings();
            if crossings < best.0 {
                best = (crossings, self.layers.clone());
            }
        }
        self.layers = best.1;
    }

    /// Swaps adjacent items as long as this reduces the number of crossings.
    fn swap_adjacent(&mut self) {
        let mut now = self.crossings();
        let mut improved = true;
        while improved && now > 0 {
            improved = false;
            for layer in 0..self.layers.len() {
                for i in 1..self.layers[layer].len() {
                    self.layers[layer].swap(i - 1, i);
                    let crossings = self.crossings();
                    if crossings < now {
                        now = crossings;
                        improved = true;
                    } else {
                        self.layers[layer].swap(i - 1, i);
                    }
                }
            }
        }
    }

    /// Relative position of each item in its layer, from 0 to 1.
    fn places(&self) -> Vec<f64> {
        let mut places = vec![0.0; self.items.len()];
        for layer in &self.layers {
            for (i, &item) in layer.iter().enumerate() {
                places[item] = (i as f64 + 0.5) / layer.len() as f64;
            }
        }
        places
    }

    fn crossings(&self) -> usize {
        let mut place = vec![0; self.items.len()];
        for layer in &self.layers {
            for (i, &item) in layer.iter().enumerate() {
                place[item] = i;
            }
        }
        let mut count = 0;
        for (i, a) in self.steps.iter().enumerate() {
            for b in &self.steps[..i] {
                if self.items[a.left].layer == self.items[b.left].layer {
                    let left = place[a.left].cmp(&place[b.left]);
                    let right = place[a.right].cmp(&place[b.right]);
                    count += usize::from(left != std::cmp::Ordering::Equal && left == right.reverse());
                }
            }
        }
        count
    }

    /// Moves the items of each layer vertically to straighten edges, without changing their order or letting them
    /// overlap.
    fn align(&mut self) {
        for layer in &self.layers {
            let mut y = 0.0;
            for &item in layer {
                y += self.items[item].extent.above;
                self.items[item].y = y;
                y += self.items[item].extent.below + ITEM_SPACING;
            }
        }
        for sweep in 0..120 {
            let count = self.layers.len();
            for i in 0..count {
                let layer = self.layers[if sweep % 2 == 0 { i } else { count - 1 - i }].clone();
                let preferred: Vec<(f64, f64)> = layer.iter().map(|&item| self.preferred_y(item)).collect();
                let mut offsets = vec![0.0];
                for pair in layer.windows(2) {
                    let room = self.items[pair[0]].extent.below + ITEM_SPACING + self.items[pair[1]].extent.above;
                    offsets.push(offsets[offsets.len() - 1] + room);
                }
                let targets =
                    preferred.iter().zip(&offsets).map(|(&(y, weight), offset)| (y - offset, weight)).collect();
                for ((&item, y), offset) in layer.iter().zip(isotonic_regression(targets)).zip(&offsets) {
                    self.items[item].y = y + offset;
                }
            }
        }
    }

    /// Preferred y of an item and the weight of the preference: the weighted mean over its neighbours.
    fn preferred_y(&self, item: usize) -> (f64, f64) {
        let stiffness = |a: usize, b: usize| match (self.items[a].what, self.items[b].what) {
            (ItemKind::Waypoint { .. }, ItemKind::Waypoint { .. }) => 6.0,
            (ItemKind::Node(_), ItemKind::Node(_)) => 1.0,
            (ItemKind::Node(_), _) | (_, ItemKind::Node(_)) => 2.0,
            _ => 3.0,
        };
        let (mut sum, mut weight) = (0.0, 0.0);
        for step in self.steps.iter().filter(|step| step.left == item || step.right == item) {
            let is_left = step.left == item;
            let neighbour = if is_left { step.right } else { step.left };
            let w = stiffness(item, neighbour);
            sum += w * (self.items[neighbour].y + self.port(step, is_left) - self.port(step, !is_left));
            weight += w;
        }
        if weight == 0.0 { (self.items[item].y, 0.1) } else { (sum / weight, weight) }
    }

    fn finish(mut self, nodes: usize, links: &[Link]) -> Placed {
        let top = self.items.iter().map(|item| item.y - item.extent.above).fold(f64::INFINITY, f64::min);
        for item in &mut self.items {
            item.y -= top;
        }
        // Left and right edge of each layer.
        let mut edges: Vec<(f64, f64)> = Vec::new();
        let mut x = 0.0;
        for (i, layer) in self.layers.iter().enumerate() {
            let width = layer.iter().map(|&item| self.items[item].extent.width).fold(0.0, f64::max);
            if i > 0 {
                let climb = |step: &Segment| (self.items[step.left].y - self.items[step.right].y).abs();
                let here = self.steps.iter().filter(|step| self.items[step.right].layer == i);
                x += (0.3 * here.map(climb).fold(0.0, f64::max)).clamp(GAPS.0, GAPS.1);
            }
            edges.push((x, x + width));
            x += width;
        }
        let middle = |item: &Item| (edges[item.layer].0 + edges[item.layer].1) / 2.0;
        let mut placed =
            Placed { nodes: vec![(0.0, 0.0); nodes], labels: vec![(0.0, 0.0); links.len()], ..Placed::default() };
        for item in &self.items {
            let kind = match item.what {
                ItemKind::Node(i) => {
                    placed.nodes[i] = (middle(item), item.y);
                    continue;
                }
                ItemKind::Label(i) => {
                    placed.labels[i] = (middle(item), item.y);
                    links[i].kind
                }
                ItemKind::Waypoint { kind, .. } => kind,
            };
            // Edges run straight through the layers of their labels and waypoints.
            let (left, right) = edges[item.layer];
            placed.parts.push(Part { points: [left, left, right, right].map(|x| (x, item.y)), kind, arrow: None });
        }
        for step in &self.steps {
            let (left, right) = (&self.items[step.left], &self.items[step.right]);
            let (start, end) = (left.y + self.port(step, false), right.y + self.port(step, true));
            let (from, to) = (edges[left.layer].1, edges[right.layer].0);
            // A node may be narrower than its layer.
            let is_node = |item: &Item| matches!(item.what, ItemKind::Node(_));
            let first = if is_node(left) { middle(left) + left.extent.half } else { from };
            let last = if is_node(right) { middle(right) - right.extent.half } else { to };
            let points = [(first, start), (from, start), (to, end), (last, end)];
            placed.parts.push(Part { points, kind: step.kind, arrow: step.arrow });
        }
        placed.width = x;
        placed.height = self.items.iter().map(|item| item.y + item.extent.below).fold(0.0, f64::max);
        placed
    }

    /// Vertical offset from the centre of a node at which an edge ends.
    fn port(&self, step: &Segment, is_right: bool) -> f64 {
        let node = if is_right { step.right } else { step.left };
        if !matches!(self.items[node].what, ItemKind::Node(_)) {
            return 0.0;
        }
        let other = |step: &Segment| self.items[if is_right { step.left } else { step.right }].y;
        let mut here: Vec<&Segment> =
            self.steps.iter().filter(|step| if is_right { step.right == node } else { step.left == node }).collect();
        here.sort_by(|a, b| other(a).total_cmp(&other(b)));
        let place = here.iter().position(|other| *other == step).unwrap_or(0);
        (place as f64 - (here.len() as f64 - 1.0) / 2.0) * PORT
    }
}

/// Weighted isotonic regression (pool adjacent violators): the ascending numbers closest to the wanted ones in weighted
/// least squares.
fn isotonic_regression(preferred: Vec<(f64, f64)>) -> Vec<f64> {
    let mut pools: Vec<(f64, f64, usize)> = Vec::new();
    for (y, weight) in preferred {
        pools.push((y, weight, 1));
        while let [.., below, last] = pools.as_slice()
            && below.0 > last.0
        {
            let weight = below.1 + last.1;
            let pool = ((below.0 * below.1 + last.0 * last.1) / weight, weight, below.2 + last.2);
            pools.truncate(pools.len() - 2);
            pools.push(pool);
        }
    }
    pools.into_iter().flat_map(|(y, _, count)| std::iter::repeat_n(y, count)).collect()
}

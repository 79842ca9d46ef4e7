// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Layered graph drawing, from left to right [Sugiyama, Tagawa, Toda 1981], by `dagre`.
//!
//! Nodes and labels are items of layers, whose items do not overlap. An edge runs straight through the layers that it
//! crosses and is curved between them.

use dagre::graph::{Graph, GraphOptions};
use dagre::layout::types::LabelPos;
use dagre::{EdgeLabel, LayoutOptions, NodeLabel, RankDir, layout};

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
}

/// x and y.
pub(super) type Point = (f64, f64);

/// Coordinates of the whole graph.
#[derive(Debug, Default)]
pub(super) struct Placed {
    /// Centre of each node.
    pub(super) nodes: Vec<Point>,
    /// Centre line of each link's label, which lies on the edge.
    pub(super) labels: Vec<Point>,
    /// Points of each link from its source to its target: straight lines between points of equal y, else curves.
    pub(super) edges: Vec<Vec<Point>>,
    pub(super) width: f64,
    pub(super) height: f64,
}

/// Vertical distance between items of a layer.
const ITEM_SPACING: f64 = 14.0;
/// Distance between two layers.
const LAYER_SPACING: f64 = 36.0;
/// Vertical distance between edges on one side of a node.
pub(super) const PORT: f64 = 11.0;

/// Places nodes and links. The first node is a source.
pub(super) fn place(nodes: &[Extent], links: &[Link]) -> Placed {
    let mut graph: Graph<NodeLabel, EdgeLabel> =
        Graph::with_options(GraphOptions { directed: true, multigraph: true, compound: false });
    for (i, node) in nodes.iter().enumerate() {
        let label = NodeLabel { width: node.width, height: node.above + node.below, ..NodeLabel::default() };
        graph.set_node(i.to_string(), Some(label));
    }
    // Edges to the first node are reversed, so that it is on the left.
    let id = |i: usize, link: &Link| match link.to {
        0 => [link.to, link.from, i].map(|n| n.to_string()),
        _ => [link.from, link.to, i].map(|n| n.to_string()),
    };
    for (i, link) in links.iter().enumerate() {
        let Extent { width, above, below, .. } = link.label;
        let label = EdgeLabel { width, height: above + below, labelpos: LabelPos::Center, ..EdgeLabel::default() };
        let [left, right, name] = id(i, link);
        graph.set_edge(left, right, Some(label), Some(&name));
    }
    let options = LayoutOptions {
        rankdir: RankDir::LR,
        nodesep: ITEM_SPACING,
        edgesep: ITEM_SPACING,
        // `dagre` halves it to make room for layers of labels.
        ranksep: 2.0 * LAYER_SPACING,
        ..LayoutOptions::default()
    };
    layout(&mut graph, Some(options));

    let mut placed = Placed::default();
    let centre_line = |x: Option<f64>, y: Option<f64>, extent: &Extent| {
        (x.unwrap_or_default(), y.unwrap_or_default() + (extent.above - extent.below) / 2.0)
    };
    for (i, node) in nodes.iter().enumerate() {
        let label = graph.node(&i.to_string()).cloned().unwrap_or_default();
        placed.nodes.push(centre_line(label.x, label.y, node));
    }
    // Points at which each link crosses a layer, from its source to its target.
    let mut crossings: Vec<Vec<Point>> = Vec::new();
    for (i, link) in links.iter().enumerate() {
        let [left, right, name] = id(i, link);
        let label = graph.edge(&left, &right, Some(&name)).cloned().unwrap_or_default();
        let (x, y) = centre_line(label.x, label.y, &link.label);
        placed.labels.push((x, y));
        // The first and the last point are ends at the outlines of the nodes.
        let inner = label.points.get(1..label.points.len().saturating_sub(1)).unwrap_or_default();
        let mut points: Vec<Point> = inner.iter().map(|p| (p.x, if is_near(p.x, x) { y } else { p.y })).collect();
        if link.to == 0 {
            points.reverse();
        }
        crossings.push(points);
    }
    placed.shift_to_origin(nodes, links, &mut crossings);
    placed.edges = (0..links.len()).map(|i| placed.edge(i, nodes, links, &crossings)).collect();
    placed
}

/// For each node, the larger number of edges that end on its left or right side.
pub(super) fn ports(nodes: usize, links: &[Link]) -> Vec<usize> {
    let placed = place(&vec![Extent::default(); nodes], links);
    let ends = links.iter().flat_map(|link| [(link.from, link), (link.to, link)]);
    let side =
        |node, right| ends.clone().filter(|(n, link)| *n == node && placed.is_right(node, link) == right).count();
    (0..nodes).map(|node| side(node, false).max(side(node, true))).collect()
}

/// `dagre` gives all items of a layer the same x.
fn is_near(a: f64, b: f64) -> bool {
    (a - b).abs() < 1.0
}

impl Placed {
    /// Moves the graph down to y = 0, and computes its size.
    fn shift_to_origin(&mut self, nodes: &[Extent], links: &[Link], crossings: &mut [Vec<Point>]) {
        let extents = nodes.iter().chain(links.iter().map(|link| &link.label));
        let boxes = self.nodes.iter().chain(&self.labels).zip(extents).map(|(p, extent)| (*p, *extent));
        let bounds: Vec<(Point, Extent)> =
            boxes.chain(crossings.iter().flatten().map(|p| (*p, Extent::default()))).collect();
        let top = bounds.iter().map(|((_, y), extent)| y - extent.above).fold(f64::INFINITY, f64::min);
        self.width = bounds.iter().map(|((x, _), extent)| x + extent.width / 2.0).fold(0.0, f64::max);
        self.height = bounds.iter().map(|((_, y), extent)| y + extent.below - top).fold(0.0, f64::max);
        for (_, y) in self.nodes.iter_mut().chain(&mut self.labels).chain(crossings.iter_mut().flatten()) {
            *y -= top;
        }
    }

    /// The other end of a link of a node is on its right.
    fn is_right(&self, node: usize, link: &Link) -> bool {
        let other = if link.from == node { link.to } else { link.from };
        self.nodes[other].0 > self.nodes[node].0
    }

    /// Points of a link, from its source to its target.
    fn edge(&self, i: usize, nodes: &[Extent], links: &[Link], crossings: &[Vec<Point>]) -> Vec<Point> {
        let Link { from, to, .. } = links[i];
        let forward = if self.is_right(from, &links[i]) { 1.0 } else { -1.0 };
        // Half the width of the layer at x.
        let half = |x: f64| {
            let nodes = self.nodes.iter().zip(nodes.iter().map(|node| node.width));
            let labels = self.labels.iter().zip(links.iter().map(|link| link.label.width));
            let here = nodes.chain(labels).filter(|((other, _), _)| is_near(*other, x));
            forward * here.map(|(_, width)| width / 2.0).fold(0.0, f64::max)
        };
        let ((start, end), (start_y, end_y)) = (
            (self.nodes[from].0, self.nodes[to].0),
            (self.port(from, i, links, crossings), self.port(to, i, links, crossings)),
        );
        let mut points = vec![(start + forward * nodes[from].half, start_y), (start + half(start), start_y)];
        points.extend(crossings[i].iter().flat_map(|&(x, y)| [(x - half(x), y), (x + half(x), y)]));
        points.extend([(end - half(end), end_y), (end - forward * nodes[to].half, end_y)]);
        points.dedup();
        points
    }

    /// y at which a link ends at one of its nodes.
    fn port(&self, node: usize, i: usize, links: &[Link], crossings: &[Vec<Point>]) -> f64 {
        let is_right = self.is_right(node, &links[i]);
        let mut ends: Vec<(f64, usize)> = Vec::new();
        for (j, (link, points)) in links.iter().zip(crossings).enumerate() {
            let nearest = match node {
                _ if node == link.from => points.first(),
                _ if node == link.to => points.last(),
                _ => continue,
            };
            if self.is_right(node, link) == is_right {
                ends.push((nearest.map_or(0.0, |point| point.1), j));
            }
        }
        ends.sort_by(|a, b| a.0.total_cmp(&b.0));
        let place = ends.iter().position(|(_, j)| *j == i).unwrap_or_default();
        self.nodes[node].1 + (place as f64 - (ends.len() as f64 - 1.0) / 2.0) * PORT
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Header sequences of frames: common ones, or a stack with labels, a tunnel or user-defined headers.

use flowloom_wire::field::{FieldId, IPV4_MAPPED, Source};
use flowloom_wire::graph::{Parent, Slice};
use flowloom_wire::{Graph, Header, Layers, Stack};

use super::{FieldValue, Shape, build};
use flowloom_random::{Draw, Xorshift64Star as Rng};

const LABELS: [Header; 4] = [Header::Mpls, Header::Mpls2, Header::Mpls3, Header::Mpls4];
const TAGS: [Header; 2] = [Header::Vlan, Header::Vlan2];

/// Headers of a frame.
#[derive(Debug, Clone)]
pub(crate) enum Outline {
    /// Common headers.
    Plain(Shape),
    /// Any header sequence of the parse graph.
    Stacked(Box<Stacked>),
}

/// Headers of each kind of frame that the stimulus builds from the standard parse graph, by [`Header::bit`], and true
/// for those with a label or a tunnel.
pub fn frame_headers() -> Vec<(u32, bool)> {
    let fields: Vec<FieldId> = FieldId::all().collect();
    let outlines = Outline::all(Graph::standard(), &fields);
    outlines.iter().map(|outline| (outline.headers(), matches!(outline, Outline::Stacked(_)))).collect()
}

/// A header stack, and the parse result of its packet.
#[derive(Debug, Clone)]
pub(crate) struct Stacked {
    stack: Stack,
    layers: Layers,
}

/// For each required field, the headers of which a frame needs one, by `Header::bit`.
#[derive(Debug, Clone)]
pub(crate) struct Needs(Vec<u32>);

impl Needs {
    pub(crate) fn of(fields: &[FieldId]) -> Needs {
        let bits = |field: &FieldId| field.headers().iter().fold(0, |bits, header| bits | header.bit());
        let mut needs: Vec<u32> = fields.iter().map(bits).filter(|&bits| bits != 0).collect();
        needs.sort_unstable();
        needs.dedup();
        Needs(needs)
    }
}

impl Outline {
    /// All outlines with common headers, and the stacks that have a label, a tunnel or a user-defined header that one
    /// of the fields belongs to.
    pub(crate) fn all(graph: &Graph, mentioned: &[FieldId]) -> Vec<Outline> {
        let headers = mentioned.iter().flat_map(|field| field.headers());
        let wanted = headers.filter(|header| is_stacked(*header)).fold(0, |bits, header| bits | header.bit());
        let plain = Shape::all().map(Outline::Plain);
        let stacks = stacks(graph, wanted).into_iter().filter_map(|headers| {
            let stack = Stack::packet(graph, &headers).ok()?;
            let layers = Layers::parse(graph, &stack.render(&[], 0));
            (layers.valid() & wanted != 0).then(|| Outline::Stacked(Box::new(Stacked { stack, layers })))
        });
        plain.chain(stacks).collect()
    }

    /// The valid headers of a frame.
    pub(crate) fn headers(&self) -> u32 {
        match self {
            Outline::Plain(shape) => shape.headers(),
            Outline::Stacked(stacked) => stacked.layers.valid(),
        }
    }

    pub(crate) fn has(&self, needs: &Needs) -> bool {
        let bits = self.headers();
        needs.0.iter().all(|need| bits & need != 0)
    }

    pub(crate) fn allows(&self, graph: &Graph, field_value: FieldValue) -> bool {
        match self {
            Outline::Plain(shape) => shape.allows(field_value),
            Outline::Stacked(stacked) => {
                !matches!(field_value.0.source(), Source::Header(..) | Source::Address { .. })
                    || stacked
                        .place(field_value)
                        .is_some_and(|value| stacked.render_if_same_headers(graph, &[value]).is_some())
            }
        }
    }

    /// Builds a frame with as many of the requested values as it can have; of two for one field the last one counts.
    pub(crate) fn build(&self, graph: &Graph, rng: &mut Rng, field_values: &[FieldValue]) -> Vec<u8> {
        match self {
            Outline::Plain(shape) => build(rng, *shape, field_values),
            Outline::Stacked(stacked) => stacked.build(graph, rng, field_values),
        }
    }
}

impl Stacked {
    /// Location of a value, if the frame has such a field.
    fn place(&self, (field, value): FieldValue) -> Option<(Slice, u128)> {
        let concrete = self.layers.resolve(field)?;
        let Source::Header(header, _) = concrete.source() else { return None };
        if let Source::Address { .. } = field.source()
            && (value >> 32 == IPV4_MAPPED >> 32) != matches!(header, Header::Ipv4 | Header::InnerIpv4)
        {
            return None;
        }
        let at = self.stack.headers().iter().position(|&found| found == header)?;
        Some((self.stack.slot(at, concrete)?, value))
    }

    /// The frame with these values, if it still parses to the same headers.
    fn render_if_same_headers(&self, graph: &Graph, values: &[(Slice, u128)]) -> Option<Vec<u8>> {
        let frame = self.stack.render(values, 0);
        (Layers::parse(graph, &frame).valid() == self.layers.valid()).then_some(frame)
    }

    fn build(&self, graph: &Graph, rng: &mut Rng, field_values: &[FieldValue]) -> Vec<u8> {
        let mut values: Vec<(Slice, u128)> = Vec::new();
        for field in self.any_values(rng).into_iter().chain(field_values.iter().copied()) {
            let Some(value) = self.place(field) else { continue };
            values.push(value);
            if self.render_if_same_headers(graph, &values).is_none() {
                values.pop();
            }
        }
        // The payload is not covered by the checksums of the stack: most frames have none.
        let payload_bytes = if rng.percent(90) { 0 } else { rng.index(24) };
        let mut frame = self.stack.render(&values, payload_bytes);
        frame.extend((0..payload_bytes).map(|_| rng.next_u64() as u8));
        frame
    }

    /// Random addresses and ports of a few hosts, for fields without a requested value.
    fn any_values(&self, rng: &mut Rng) -> Vec<FieldValue> {
        let mut values = Vec::new();
        for field in FieldId::all().filter(|&field| self.layers.is_present(field)) {
            match (field.source(), field.width_bits()) {
                (Source::Header(Header::Ipv4 | Header::InnerIpv4, _), 32) => {
                    values.push((field, 0x0a00_0000 | u128::from(rng.below(4))));
                }
                (Source::Header(Header::Ipv6 | Header::InnerIpv6, _), 128) => {
                    values.push((field, 0xfd00_u128 << 112 | u128::from(rng.below(4))));
                }
                _ => {}
            }
        }
        values
    }
}

/// True if only stacks have this header.
fn is_stacked(header: Header) -> bool {
    use Header as H;
    let is_inner =
        matches!(header, H::InnerIpv4 | H::InnerIpv6 | H::InnerTcp | H::InnerUdp | H::InnerIcmp | H::InnerIcmp6);
    is_inner || header == H::Gtpu || LABELS.contains(&header) || header.user_index().is_some()
}

/// Candidate header stacks; the caller drops those that do not parse.
fn stacks(graph: &Graph, wanted: u32) -> Vec<Vec<Header>> {
    if wanted == 0 {
        return Vec::new();
    }
    let has_labels = LABELS.iter().any(|label| wanted & label.bit() != 0);
    let has_tunnel = wanted & (Header::Gtpu.bit() | inner_bits()) != 0;
    let depths = if has_labels { 0..=LABELS.len() } else { 0..=0 };
    let mut links = Vec::new();
    for tags in 0..=TAGS.len() {
        for depth in depths.clone() {
            let link = [Header::Ethernet].into_iter().chain(TAGS[..tags].iter().copied());
            links.push(link.chain(LABELS[..depth].iter().copied()).collect::<Vec<_>>());
        }
    }
    let mut stacks = Vec::new();
    for link in &links {
        for (ip, icmp) in [(Header::Ipv4, Header::Icmp), (Header::Ipv6, Header::Icmp6)] {
            for transport in [Header::Tcp, Header::Udp, icmp] {
                stacks.push([&link[..], &[ip, transport]].concat());
            }
            for end in user_header_chains(graph, &[Parent::Ip]) {
                stacks.push([&link[..], &[ip], &end[..]].concat());
            }
            for (parent, transport) in [(Parent::Udp, Header::Udp), (Parent::Tcp, Header::Tcp)] {
                for end in user_header_chains(graph, &[parent]) {
                    stacks.push([&link[..], &[ip, transport], &end[..]].concat());
                }
            }
            let inners = [
                (Header::InnerIpv4, [Header::InnerTcp, Header::InnerUdp, Header::InnerIcmp]),
                (Header::InnerIpv6, [Header::InnerTcp, Header::InnerUdp, Header::InnerIcmp6]),
            ];
            for (inner, transports) in inners.into_iter().filter(|_| has_tunnel) {
                for transport in transports {
                    stacks.push([&link[..], &[ip, Header::Udp, Header::Gtpu, inner, transport]].concat());
                }
            }
        }
        for end in user_header_chains(graph, &[Parent::Ethernet]) {
            stacks.push([&link[..], &end[..]].concat());
        }
    }
    stacks
}

fn inner_bits() -> u32 {
    Header::ALL.into_iter().filter(|header| is_stacked(*header) && header.user_index().is_none()).fold(
        0,
        |bits, header| {
            if LABELS.contains(&header) { bits } else { bits | header.bit() }
        },
    )
}

/// Chains of user-defined headers that may follow one of these parents.
fn user_header_chains(graph: &Graph, after: &[Parent]) -> Vec<Vec<Header>> {
    let mut chains = Vec::new();
    for (i, (user, header)) in graph.user_headers().iter().zip(Header::USER).enumerate() {
        if after.contains(&user.after) {
            chains.push(vec![header]);
            chains.extend(
                user_header_chains(graph, &[Parent::User(i)]).into_iter().map(|chain| [&[header], &chain[..]].concat()),
            );
        }
    }
    chains
}

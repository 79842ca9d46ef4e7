// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Steps: push and pop of headers, tunnels, copies, and packets that a row creates.

use flowloom_wire::{FieldId, Header, Stack, StackError};

use crate::diagnostic::{Code, did_you_mean, list_names};
use crate::model::{Expr, HeaderTemplate, NewValue, Span, Step, StepKind, WriteTarget};
use crate::steps;
use crate::syntax::ast::{self, Expr as Tree, Name, Template};

use super::Checker;
use super::actions::{Target, share_bits};

/// Headers that a step can create, by the prefix of their fields.
const CREATABLE_HEADERS: [Header; 10] = [
    Header::Ethernet,
    Header::Vlan,
    Header::Mpls,
    Header::Ipv4,
    Header::Ipv6,
    Header::Tcp,
    Header::Udp,
    Header::Icmp,
    Header::Icmp6,
    Header::Gtpu,
];

/// Fields without a default value: a header is meaningless without them.
const REQUIRED: [&str; 15] = [
    "eth.dst",
    "eth.src",
    "vlan.id",
    "mpls.label",
    "ipv4.src",
    "ipv4.dst",
    "ipv6.src",
    "ipv6.dst",
    "tcp.sport",
    "tcp.dport",
    "udp.sport",
    "udp.dport",
    "icmp.type",
    "icmp6.type",
    "gtpu.teid",
];

impl<'s> Checker<'s, '_> {
    /// Checks a step of a row. `None` if an error was reported.
    pub(super) fn step(&mut self, step: &ast::Step<'s>, span: Span) -> Option<StepKind> {
        let tags = [Header::Vlan, Header::Mpls];
        match step {
            ast::Step::Push(template) => {
                let checked = self.template(template, "push", &tags)?;
                self.check_required(template, &checked, |_| false)?;
                Some(StepKind::Push(checked))
            }
            ast::Step::Pop(name) => self.step_header(*name, "pop", &tags).map(StepKind::Pop),
            ast::Step::Encap(trees) => {
                let tunnel = [Header::Ipv4, Header::Ipv6, Header::Udp, Header::Gtpu];
                let headers = self.templates(trees, "encap", &tunnel);
                self.stack(StepKind::Encapsulate(headers?), trees, span)
            }
            ast::Step::Decap => Some(StepKind::Decapsulate),
            ast::Step::Log(level, text, values) => self.log(*level, *text, values, span),
            ast::Step::Clone(port) => self.step_port(port).map(StepKind::Clone),
            ast::Step::Emit(port, trees) => {
                let port = self.step_port(port);
                let users: Vec<Header> = Header::USER.into_iter().take(self.graph.user_headers().len()).collect();
                let headers = self.templates(trees, "emit", &[&CREATABLE_HEADERS[..], &users].concat());
                self.stack(StepKind::Emit { port: port?, headers: headers? }, trees, span)
            }
        }
    }

    fn step_port(&mut self, tree: &Tree<'s>) -> Option<Expr> {
        let operand = self.narrow_operand(tree)?;
        self.port(&operand)
    }

    fn templates(&mut self, trees: &[Template<'s>], step: &str, allowed: &[Header]) -> Option<Vec<HeaderTemplate>> {
        let templates: Vec<_> = trees.iter().map(|tree| self.template(tree, step, allowed)).collect();
        templates.into_iter().collect()
    }

    /// Checks that the headers of a step form a valid packet, and that each has its required fields.
    fn stack(&mut self, kind: StepKind, trees: &[Template<'s>], span: Span) -> Option<StepKind> {
        let stack = match steps::stack(&self.graph, &kind) {
            Ok(stack) => stack?,
            Err(error) => {
                self.report_stack(&kind, &error, trees, span);
                return None;
            }
        };
        let templates = match &kind {
            StepKind::Encapsulate(templates) | StepKind::Emit { headers: templates, .. } => templates.as_slice(),
            _ => &[],
        };
        let mut is_ok = true;
        for (i, (tree, template)) in trees.iter().zip(templates).enumerate() {
            // The header that follows determines some of the fields.
            let is_filled = |field| is_filled(&stack, i, field);
            is_ok &= self.check_required(tree, template, is_filled).is_some();
        }
        is_ok.then_some(kind)
    }

    fn report_stack(&mut self, kind: &StepKind, error: &StackError, trees: &[Template<'s>], span: Span) {
        let place = match error {
            StackError::First { .. } => trees.first(),
            StackError::Follows { header, after } => {
                let is = |tree: &Template<'_>, name: &str| outermost_name(name) == tree.header.text;
                trees.windows(2).find(|two| is(&two[0], after) && is(&two[1], header)).map(|two| &two[1])
            }
            StackError::Last { .. } => trees.last(),
        };
        let help = match kind {
            StepKind::Encapsulate(_) => {
                "write a tunnel as `encap ipv4(src = a, dst = b) / udp() / gtpu(teid = t);`, its IP header being `ipv4` or `ipv6`"
            }
            _ => {
                "write a packet from the outermost header inwards, as `emit(port) eth(...) / ipv4(...) / udp(...)` or `emit(port) \
                 eth(...) / ipv4(...) / udp(...) / gtpu(...) / ipv4(...) / icmp(...)`"
            }
        };
        self.sink
            .error(Code::BadHeaders, place.map_or(span, |tree| tree.header.span), error.to_string(), "not allowed here")
            .help(help);
    }

    fn step_header(&mut self, name: Name<'s>, step: &str, allowed: &[Header]) -> Option<Header> {
        self.use_header(name.text);
        if let Some(found) = allowed.iter().find(|header| self.graph.header_name(**header) == name.text) {
            return Some(*found);
        }
        let names: Vec<String> = allowed.iter().map(|header| self.graph.header_name(*header).to_owned()).collect();
        let near = did_you_mean(name.text, names.iter().map(String::as_str));
        let outermost = outermost_name(name.text);
        let help = if outermost != name.text && names.iter().any(|known| known == outermost) {
            format!("headers of a step have the names of outermost ones: write `{outermost}`")
        } else if let Some(near) = near {
            format!("did you mean `{near}`?")
        } else {
            format!("`{step}` takes {}", list_names(names.iter().map(String::as_str), 20))
        };
        if self.broken_headers.contains(&name.text) {
            return None;
        }
        let is_known = CREATABLE_HEADERS.iter().any(|header| header.name() == name.text)
            || self.graph.user_header(name.text).is_some();
        let (code, message) = if is_known {
            (Code::BadHeaders, format!("`{step}` cannot be done with `{}`", name.text))
        } else {
            (Code::UnknownHeader, format!("there is no header `{}` for `{step}`", name.text))
        };
        self.sink.error(code, name.span, message, "not possible here").help(help);
        None
    }

    fn template(&mut self, tree: &Template<'s>, step: &str, allowed: &[Header]) -> Option<HeaderTemplate> {
        let header = self.step_header(tree.header, step, allowed);
        let mut is_ok = true;
        let mut given: Vec<(FieldId, Span)> = Vec::new();
        let mut values = Vec::new();
        for (name, value) in &tree.values {
            let Some(field) = header.and_then(|header| self.template_field(header, *name)) else {
                self.operand(value); // marks its names as used and reports its errors
                is_ok = false;
                continue;
            };
            if let Some((_, first)) = given.iter().find(|(other, _)| share_bits(*other, field)) {
                self.sink
                    .error(
                        Code::WrittenTwice,
                        name.span,
                        format!("`{}` is given twice", self.field_name(field)),
                        "given again",
                    )
                    .secondary_label(*first, "first set here")
                    .help("set each field, and each bit of a header, once");
                is_ok = false;
                continue;
            }
            given.push((field, name.span));
            match self.template_value(field, value) {
                Some(value) => values.push((field, value)),
                None => is_ok = false,
            }
        }
        is_ok.then_some(HeaderTemplate { header: header?, values })
    }

    /// Returns the field called `name` of a header that a step creates.
    fn template_field(&mut self, header: Header, name: Name<'s>) -> Option<FieldId> {
        let of = self.graph.header_name(header).to_owned();
        let field = self.graph.field(&format!("{of}.{}", name.text)).filter(|field| field.header() == Some(header));
        if let Some(field) = field.filter(|field| field.is_writable()) {
            return Some(field);
        }
        let known = self.settable_fields(header);
        let names = known.iter().map(|(name, _)| name.as_str());
        let (code, message, label) = match field {
            Some(_) => {
                (Code::ReadOnlyField, format!("`{of}.{}` is computed automatically", name.text), "cannot be set")
            }
            None => (Code::UnknownField, format!("`{of}` has no field `{}`", name.text), "unknown field"),
        };
        let help = match (field, did_you_mean(name.text, names.clone()), (of.as_str(), name.text)) {
            (None, _, ("ipv6", "ttl")) => "did you mean `hop_limit`?".to_owned(),
            (None, _, ("ipv6", "tos" | "dscp")) => "did you mean `tc`?".to_owned(),
            (None, Some(near), _) => format!("did you mean `{near}`?"),
            (Some(_), ..) => format!("remove it; `{of}` takes {}", list_names(names, 24)),
            (None, None, _) => format!("`{of}` takes {}", list_names(names, 24)),
        };
        self.sink.error(code, name.span, message, label).help(help);
        None
    }

    /// Fields of a header that a template can set, by their names without the header.
    fn settable_fields(&self, header: Header) -> Vec<(String, FieldId)> {
        let catalogue = FieldId::all().filter(|field| field.header() == Some(header) && field.is_writable());
        let own = self.graph.user_fields(header).map(|(field, user)| (user.name.clone(), field));
        catalogue.filter_map(|field| Some((field.name().split_once('.')?.1.to_owned(), field))).chain(own).collect()
    }

    fn template_value(&mut self, field: FieldId, tree: &Tree<'s>) -> Option<NewValue> {
        let target = Target::Write(WriteTarget::Field(field));
        let name = self.field_name(field);
        let slot = self.slot(target, &name);
        if slot.ty.is_wide() {
            return self.wide_value(target, &name, None, tree).map(|(_, value)| value);
        }
        let operand = self.narrow_for(tree, target, &name)?;
        let (value, width) = self.value(&operand, &slot)?;
        Some(NewValue::Number { value, width })
    }

    /// Reports required fields that are neither given nor filled in (`is_filled`) from the header that follows.
    fn check_required(
        &mut self,
        tree: &Template<'s>,
        template: &HeaderTemplate,
        is_filled: impl Fn(FieldId) -> bool,
    ) -> Option<()> {
        let is_missing = |field: &FieldId| {
            field.header() == Some(template.header)
                && !template.values.iter().any(|(given, _)| given == field)
                && !is_filled(*field)
        };
        let missing: Vec<String> = REQUIRED
            .iter()
            .filter_map(|name| FieldId::by_name(name))
            .filter(is_missing)
            .filter_map(|field| Some(field.name().split_once('.')?.1.to_owned()))
            .collect();
        if missing.is_empty() {
            return Some(());
        }
        let shown = list_names(missing.iter().map(String::as_str), 8);
        let example: Vec<String> = missing.iter().map(|name| format!("{name} = ...")).collect();
        let header = tree.header.text;
        self.sink
            .error(Code::Missing, tree.header.span, format!("`{header}` lacks {shown}"), format!("needs {shown}"))
            .help(format!("write `{header}({})`; fields with a default are optional", example.join(", ")));
        None
    }

    /// Reports more pops than a parsed packet can have tags, labels or tunnels.
    pub(super) fn check_pop_count(&mut self, steps: &[Step]) {
        let (mut tags, mut labels, mut tunnels) = (2_i32, 4_i32, 1_i32);
        for step in steps {
            let (left, what, most) = match &step.kind {
                StepKind::Push(template) if template.header == Header::Vlan => {
                    tags += 1;
                    continue;
                }
                StepKind::Push(_) => {
                    labels += 1;
                    continue;
                }
                StepKind::Encapsulate(_) => {
                    tunnels += 1;
                    continue;
                }
                StepKind::Pop(Header::Vlan) => (&mut tags, "pop vlan", "two tags"),
                StepKind::Pop(_) => (&mut labels, "pop mpls", "four labels"),
                StepKind::Decapsulate => (&mut tunnels, "decap", "one tunnel"),
                StepKind::Clone(_) | StepKind::Emit { .. } | StepKind::Log(_) => continue,
            };
            *left -= 1;
            if *left < 0 {
                self.sink
                    .error(
                        Code::BadHeaders,
                        step.span,
                        format!("more `{what}` than a parsed packet can have"),
                        format!("a packet is parsed up to {most}"),
                    )
                    .help("continue in a later element with `goto`, which parses the new frame");
            }
        }
    }
}

/// True if the stack fills in this field of one of its headers.
fn is_filled(stack: &Stack, header: usize, field: FieldId) -> bool {
    stack.slot(header, field).is_some_and(|slot| slot.read(stack.template()) != Some(0))
}

/// Name of the outermost header of the same format.
fn outermost_name(name: &str) -> &str {
    let name = name.strip_prefix("inner.").unwrap_or(name);
    match name {
        "vlan2" => "vlan",
        "mpls2" | "mpls3" | "mpls4" => "mpls",
        name => name,
    }
}

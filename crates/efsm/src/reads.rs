// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The packet fields that a row needs: a row that reads or writes an absent field does not match.

use flowloom_wire::field::FieldId;

use flowloom_wire::Header;

use crate::model::{
    Actions, Condition, Expr, HeaderTemplate, Logged, NewValue, Row, Step, StepKind, Terminal, Wide, WriteTarget,
};

impl Expr {
    /// Calls `visit` for this expression and every subexpression.
    pub fn walk<'a>(&'a self, visit: &mut dyn FnMut(&'a Expr)) {
        visit(self);
        match self {
            Expr::Not(inner) => inner.walk(visit),
            Expr::Binary(_, left, right)
            | Expr::RotateRight { left, right, .. }
            | Expr::MinMax { left, right, .. }
            | Expr::Ewma { average: left, sample: right, .. } => {
                left.walk(visit);
                right.walk(visit);
            }
            Expr::Hash(words) => words.iter().for_each(|word| word.walk(visit)),
            Expr::Constant(_)
            | Expr::Register(_)
            | Expr::Global(_)
            | Expr::Old(_)
            | Expr::Metadata(_)
            | Expr::Field(_)
            | Expr::Now { .. }
            | Expr::Word { .. }
            | Expr::State => {}
        }
    }

    /// The values of which it reads words.
    fn wides(&self) -> Vec<Wide> {
        let mut wides = Vec::new();
        self.walk(&mut |e| {
            if let Expr::Word { of, .. } = e {
                wides.push(*of);
            }
        });
        wides
    }
}

impl NewValue {
    /// The numeric expression, if it is one.
    pub fn expr(&self) -> Option<&Expr> {
        match self {
            NewValue::Number { value, .. } => Some(value),
            NewValue::Wide(_) => None,
        }
    }

    /// The wide value, if it is one.
    pub fn wide(&self) -> Option<Wide> {
        match self {
            NewValue::Number { .. } => None,
            NewValue::Wide(wide) => Some(*wide),
        }
    }

    fn fields(&self, fields: &mut Vec<FieldId>) {
        match self {
            NewValue::Number { value, .. } => value.walk(&mut |e| fields.extend(field_of(e))),
            NewValue::Wide(wide) => fields.extend(wide.field()),
        }
    }
}

impl Wide {
    /// The packet field, if it is one.
    pub fn field(self) -> Option<FieldId> {
        match self {
            Wide::Field(field) => Some(field),
            Wide::Constant(_) | Wide::Register(_) | Wide::Global(_) | Wide::Old(_) | Wide::Metadata(_) => None,
        }
    }
}

impl Condition {
    /// The numeric expressions of the condition.
    pub fn exprs(&self) -> Vec<&Expr> {
        match self {
            Condition::Compare { left, right, .. } | Condition::Serial { left, right, .. } => vec![left, right],
            Condition::OneOf { operand, .. } => vec![operand],
            Condition::Masked { .. }
            | Condition::Range { .. }
            | Condition::Within { .. }
            | Condition::Same { .. }
            | Condition::Present { .. }
            | Condition::Full { .. } => Vec::new(),
        }
    }

    /// The wide values of the condition.
    pub fn wides(&self) -> Vec<Wide> {
        let mut wides: Vec<Wide> = self.exprs().into_iter().flat_map(Expr::wides).collect();
        wides.extend(match self {
            Condition::Masked { operand, .. } | Condition::Within { operand, .. } => vec![*operand],
            Condition::Same { left, right, .. } => vec![*left, *right],
            Condition::Compare { .. }
            | Condition::Serial { .. }
            | Condition::OneOf { .. }
            | Condition::Range { .. }
            | Condition::Present { .. }
            | Condition::Full { .. } => Vec::new(),
        });
        wides
    }

    /// The field that the condition requires to be absent.
    pub fn absent(&self) -> Option<FieldId> {
        match self {
            Condition::Present { field, negated: true } => Some(*field),
            _ => None,
        }
    }

    /// The fields that the condition reads.
    pub fn fields(&self) -> Vec<FieldId> {
        let mut fields: Vec<FieldId> = self.wides().into_iter().filter_map(Wide::field).collect();
        if let Condition::Range { field, .. } | Condition::Present { field, negated: false } = self {
            fields.push(*field);
        }
        for expr in self.exprs() {
            expr.walk(&mut |e| fields.extend(field_of(e)));
        }
        fields
    }
}

impl Step {
    /// The headers that the step adds.
    pub fn headers(&self) -> &[HeaderTemplate] {
        match &self.kind {
            StepKind::Push(header) => std::slice::from_ref(header),
            StepKind::Encapsulate(headers) | StepKind::Emit { headers, .. } => headers,
            StepKind::Pop(_) | StepKind::Decapsulate | StepKind::Clone(_) | StepKind::Log(_) => &[],
        }
    }

    /// The values that the step logs.
    pub fn logged(&self) -> &[Logged] {
        match &self.kind {
            StepKind::Log(log) => &log.values,
            _ => &[],
        }
    }

    /// The port through which a packet leaves.
    pub fn port(&self) -> Option<&Expr> {
        match &self.kind {
            StepKind::Clone(port) | StepKind::Emit { port, .. } => Some(port),
            StepKind::Push(_)
            | StepKind::Pop(_)
            | StepKind::Encapsulate(_)
            | StepKind::Decapsulate
            | StepKind::Log(_) => None,
        }
    }

    /// Whether it changes the structure of the frame.
    pub fn changes_frame(&self) -> bool {
        match &self.kind {
            StepKind::Push(_) | StepKind::Pop(_) | StepKind::Encapsulate(_) | StepKind::Decapsulate => true,
            StepKind::Clone(_) | StepKind::Emit { .. } | StepKind::Log(_) => false,
        }
    }
}

/// Fields that are present if and only if a frame has the headers that the steps remove or build upon. Headers added by
/// earlier steps of the row need not be in the packet.
fn needs_of_steps(steps: &[Step]) -> Vec<FieldId> {
    const TAGS: [&str; 2] = ["vlan.id", "vlan2.id"];
    const LABELS: [&str; 4] = ["mpls.label", "mpls2.label", "mpls3.label", "mpls4.label"];
    let mut needs = Vec::new();
    // Tags, labels and tunnels that the row has added, and tags and labels of the packet that it has removed.
    let (mut own_tags, mut own_labels, mut own_tunnels) = (0_usize, 0_usize, 0_usize);
    let (mut tags, mut labels) = (0_usize, 0_usize);
    let take = |own: &mut usize, of: &mut usize, fields: &[&'static str]| {
        if *own > 0 {
            *own -= 1;
            return None;
        }
        *of += 1;
        fields.get(*of - 1).copied()
    };
    for step in steps {
        let field = match &step.kind {
            StepKind::Push(template) => {
                *(if template.header == Header::Vlan { &mut own_tags } else { &mut own_labels }) += 1;
                Some("eth.type")
            }
            StepKind::Pop(Header::Vlan) => take(&mut own_tags, &mut tags, &TAGS),
            StepKind::Pop(_) => take(&mut own_labels, &mut labels, &LABELS),
            StepKind::Encapsulate(_) => {
                own_tunnels += 1;
                Some("ip.version")
            }
            StepKind::Decapsulate => take(&mut own_tunnels, &mut 0, &["inner.ip.version"]),
            StepKind::Clone(_) | StepKind::Emit { .. } | StepKind::Log(_) => None,
        };
        needs.extend(field.and_then(FieldId::by_name));
    }
    needs
}

impl Actions {
    /// Every value that the actions compute, except ports.
    pub fn values(&self) -> impl Iterator<Item = &NewValue> {
        let templates = self.steps.iter().flat_map(Step::headers).flat_map(|header| &header.values);
        let logged = self.steps.iter().flat_map(Step::logged).map(|logged| &logged.value);
        self.writes.iter().map(|write| &write.value).chain(templates.map(|(_, value)| value)).chain(logged)
    }

    /// The numeric expressions of the actions.
    pub fn exprs(&self) -> Vec<&Expr> {
        let mut exprs: Vec<&Expr> = self.values().filter_map(NewValue::expr).collect();
        exprs.extend(self.steps.iter().filter_map(Step::port));
        if let Terminal::Forward(port) = &self.terminal {
            exprs.push(port);
        }
        exprs
    }

    /// The wide values of the actions.
    pub fn wides(&self) -> Vec<Wide> {
        let words = self.exprs().into_iter().flat_map(Expr::wides);
        self.values().filter_map(NewValue::wide).chain(words).collect()
    }

    /// The fields that the actions read or require.
    pub fn fields_read(&self) -> Vec<FieldId> {
        let mut fields = needs_of_steps(&self.steps);
        for expr in self.exprs() {
            expr.walk(&mut |e| fields.extend(field_of(e)));
        }
        fields.extend(self.wides().into_iter().filter_map(Wide::field));
        fields
    }

    /// The fields that the actions write.
    pub fn fields_written(&self) -> Vec<FieldId> {
        self.writes
            .iter()
            .filter_map(|write| match write.target {
                WriteTarget::Field(field) => Some(field),
                WriteTarget::Metadata(_) => None,
            })
            .collect()
    }

    /// Whether a step writes a log record.
    pub fn reports(&self) -> bool {
        self.steps.iter().any(|step| matches!(step.kind, StepKind::Log(_)))
    }

    /// Whether a step changes the structure of the frame.
    pub fn changes_frame(&self) -> bool {
        self.steps.iter().any(Step::changes_frame)
    }
}

impl Row {
    /// Every numeric expression of the row.
    pub fn exprs(&self) -> Vec<&Expr> {
        let mut exprs: Vec<&Expr> = self.conditions.iter().flat_map(Condition::exprs).collect();
        exprs.extend(self.updates.iter().filter_map(|update| update.value.expr()));
        exprs.extend(self.actions.exprs());
        exprs
    }

    /// Whether the row reads the packet's time; log records contain it.
    pub fn reads_now(&self) -> bool {
        let mut found = self.actions.reports();
        for expr in self.exprs() {
            expr.walk(&mut |e| found |= matches!(e, Expr::Now { .. }));
        }
        found
    }

    /// Every wide value of the row.
    pub fn wides(&self) -> Vec<Wide> {
        let mut wides: Vec<Wide> = self.conditions.iter().flat_map(Condition::wides).collect();
        wides.extend(self.updates.iter().filter_map(|update| update.value.wide()));
        wides.extend(self.updates.iter().filter_map(|update| update.value.expr()).flat_map(Expr::wides));
        wides.extend(self.actions.wides());
        wides
    }

    /// The fields that must be present for the row to match, each once, in the order of the catalogue.
    pub fn fields(&self) -> Vec<FieldId> {
        let mut fields: Vec<FieldId> = self.conditions.iter().flat_map(Condition::fields).collect();
        for update in &self.updates {
            update.value.fields(&mut fields);
        }
        fields.extend(self.actions.fields_read());
        fields.extend(self.actions.fields_written());
        fields.sort_unstable();
        fields.dedup();
        fields
    }
}

fn field_of(expr: &Expr) -> Option<FieldId> {
    match expr {
        Expr::Field(field) | Expr::Word { of: Wide::Field(field), .. } => Some(*field),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Span;

    #[test]
    fn steps_require_headers_that_the_row_does_not_push() {
        let template = |header| HeaderTemplate { header, values: Vec::new() };
        let push = |header| StepKind::Push(template(header));
        let tunnel =
            || StepKind::Encapsulate(vec![template(Header::Ipv4), template(Header::Udp), template(Header::Gtpu)]);
        let (vlan, mpls) = (Header::Vlan, Header::Mpls);
        for (steps, expected) in [
            (vec![push(vlan)], vec!["eth.type"]),
            (vec![StepKind::Pop(vlan), StepKind::Pop(vlan)], vec!["vlan.id", "vlan2.id"]),
            (vec![push(mpls), StepKind::Pop(mpls)], vec!["eth.type"]),
            (
                vec![push(mpls), StepKind::Pop(mpls), StepKind::Pop(mpls), push(vlan), StepKind::Pop(mpls)],
                vec!["eth.type", "mpls.label", "eth.type", "mpls2.label"],
            ),
            (vec![StepKind::Pop(vlan), push(vlan), StepKind::Pop(vlan)], vec!["vlan.id", "eth.type"]),
            (vec![tunnel(), StepKind::Decapsulate], vec!["ip.version"]),
            (vec![StepKind::Decapsulate, tunnel()], vec!["inner.ip.version", "ip.version"]),
        ] {
            let steps: Vec<Step> = steps.into_iter().map(|kind| Step { kind, span: Span::default() }).collect();
            let found: Vec<_> = needs_of_steps(&steps).into_iter().map(|field| field.name()).collect();
            assert_eq!(found, expected, "{steps:?}");
        }
    }
}

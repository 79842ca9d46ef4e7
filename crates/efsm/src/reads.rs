//! Which packet fields a row needs: a row that reads or writes an absent field does not match.

use flowloom_wire::field::FieldId;

use crate::model::{Actions, Condition, Expr, Row, Terminal, WriteTarget, WriteValue};

impl Expr {
    /// Calls `visit` for this expression and everything in it.
    pub fn walk<'a>(&'a self, visit: &mut dyn FnMut(&'a Expr)) {
        visit(self);
        match self {
            Expr::Not(inner) => inner.walk(visit),
            Expr::Binary(_, left, right)
            | Expr::RotateRight { left, right, .. }
            | Expr::Extreme { left, right, .. }
            | Expr::Ewma { average: left, sample: right, .. } => {
                left.walk(visit);
                right.walk(visit);
            }
            Expr::Constant(_)
            | Expr::Register(_)
            | Expr::Global(_)
            | Expr::Metadata(_)
            | Expr::Field(_)
            | Expr::Now { .. }
            | Expr::State => {}
        }
    }
}

impl Condition {
    /// The numeric expressions of the condition.
    pub fn exprs(&self) -> Vec<&Expr> {
        match self {
            Condition::Compare { left, right, .. } | Condition::Serial { left, right, .. } => vec![left, right],
            Condition::Masked { .. } | Condition::Range { .. } | Condition::SameField { .. } => Vec::new(),
        }
    }

    /// The fields that the condition reads.
    pub fn fields(&self) -> Vec<FieldId> {
        match self {
            Condition::Compare { .. } | Condition::Serial { .. } => {
                let mut fields = Vec::new();
                for expr in self.exprs() {
                    expr.walk(&mut |e| fields.extend(field_of(e)));
                }
                fields
            }
            Condition::Masked { field, .. } | Condition::Range { field, .. } => vec![*field],
            Condition::SameField { left, right, .. } => vec![*left, *right],
        }
    }
}

impl Actions {
    /// The numeric expressions of the actions.
    pub fn exprs(&self) -> Vec<&Expr> {
        let mut exprs: Vec<&Expr> = self
            .writes
            .iter()
            .filter_map(|write| match &write.value {
                WriteValue::Number { value, .. } => Some(value),
                WriteValue::Wide(_) | WriteValue::Copy(_) => None,
            })
            .collect();
        if let Terminal::Forward(port) = &self.terminal {
            exprs.push(port);
        }
        exprs
    }

    /// The fields that the actions read.
    pub fn fields_read(&self) -> Vec<FieldId> {
        let mut fields = Vec::new();
        for expr in self.exprs() {
            expr.walk(&mut |e| fields.extend(field_of(e)));
        }
        for write in &self.writes {
            if let WriteValue::Copy(from) = write.value {
                fields.push(from);
            }
        }
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
}

impl Row {
    /// Every numeric expression of the row.
    pub fn exprs(&self) -> Vec<&Expr> {
        let mut exprs: Vec<&Expr> = self.conditions.iter().flat_map(Condition::exprs).collect();
        exprs.extend(self.updates.iter().map(|update| &update.value));
        exprs.extend(self.actions.exprs());
        exprs
    }

    /// The fields that must be present for the row to match, each once, in the order of the catalogue.
    pub fn fields(&self) -> Vec<FieldId> {
        let mut fields: Vec<FieldId> = self.conditions.iter().flat_map(Condition::fields).collect();
        for update in &self.updates {
            update.value.walk(&mut |e| fields.extend(field_of(e)));
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
        Expr::Field(field) => Some(*field),
        _ => None,
    }
}

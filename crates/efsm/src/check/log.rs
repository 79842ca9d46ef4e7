// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `log` and `alert`: reports to user space.

use crate::diagnostic::Code;
use crate::events::{MAX_TEXT_BYTES, MAX_VALUES};
use crate::model::{Destination, Level, Log, LogFormat, Logged, NewValue, Span, StepKind, Wide};
use crate::syntax::ast::{Expr as Tree, Name};

use super::Checker;
use super::constant::Constant;
use super::numeric::ExprTraits;
use super::operand::{Leaf, Operand, OperandKind};

/// Width of reported numbers, in bits.
const NUMBER_BITS: u8 = 64;

impl<'s> Checker<'s, '_> {
    /// Checks a `log` or `alert`. `None` if an error was reported.
    pub(super) fn log(&mut self, level: Level, text: Name<'s>, values: &[Tree<'s>], span: Span) -> Option<StepKind> {
        let id = self.logs;
        self.logs += 1;
        let mut is_ok = self.log_text(text, level).is_some();
        let mut checked: Vec<Logged> = Vec::new();
        for tree in values {
            match self.logged(tree) {
                Some(logged) if checked.iter().any(|other| other.name == logged.name) => {
                    self.sink
                        .error(
                            Code::Duplicate,
                            tree.span,
                            format!("`{}` is logged twice", logged.name),
                            "repeated here",
                        )
                        .help("log each value once");
                    is_ok = false;
                }
                Some(logged) => checked.push(logged),
                None => is_ok = false,
            }
        }
        if values.len() > MAX_VALUES {
            self.sink
                .error(
                    Code::OutOfRange,
                    span,
                    format!("`{}` with {} values", level.name(), values.len()),
                    format!("at most {MAX_VALUES} values"),
                )
                .help("log the rest with a second one");
            is_ok = false;
        }
        is_ok.then(|| StepKind::Log(Log { id, level, text: text.text.to_owned(), values: checked }))
    }

    fn log_text(&mut self, text: Name<'s>, level: Level) -> Option<()> {
        let (message, label) = if text.text.trim().is_empty() {
            (format!("`{}` with an empty text", level.name()), "empty text".to_owned())
        } else if text.text.len() > MAX_TEXT_BYTES {
            let found = text.text.len();
            (format!("a text of {found} bytes"), format!("at most {MAX_TEXT_BYTES} bytes"))
        } else if text.text.chars().any(char::is_control) {
            ("a text with control characters".to_owned(), "printed unescaped".to_owned())
        } else {
            return Some(());
        };
        self.sink
            .error(Code::BadLiteral, text.span, message, label)
            .help("describe the event briefly, as in `alert(\"port scan\", ip.src);`; values follow the text");
        None
    }

    fn logged(&mut self, tree: &Tree<'s>) -> Option<Logged> {
        let operand = self.operand(tree)?;
        // The source text, without line ends and comments.
        let lines = self.text(tree.span).lines().filter_map(|line| line.split('#').next());
        let name = lines.flat_map(str::split_whitespace).collect::<Vec<_>>().join(" ");
        let wide = match operand.kind {
            OperandKind::Wide(wide) => Some(wide),
            OperandKind::Constant(Constant::Ipv6(address)) => Some(Wide::Constant(address)),
            _ => None,
        };
        if let Some(wide) = wide {
            return Some(Logged { name, value: NewValue::Wide(wide), format: LogFormat::Address });
        }
        let mut facts = ExprTraits::default();
        self.gather(&operand, &mut facts)?;
        let mode = self.arithmetic(&facts, NUMBER_BITS, false)?;
        let format =
            self.display_format(&operand).unwrap_or(if mode.signed { LogFormat::Signed } else { LogFormat::Unsigned });
        let value = self.build(&operand, mode)?;
        Some(Logged { name, value: NewValue::Number { value, width: mode.width }, format })
    }

    /// Display format of an address. `None` for other numbers.
    fn display_format(&self, operand: &Operand) -> Option<LogFormat> {
        let leaf = match operand.kind {
            OperandKind::Constant(Constant::Ipv4(_)) => return Some(LogFormat::Ipv4),
            OperandKind::Constant(Constant::Mac(_)) => return Some(LogFormat::Mac),
            // A constant has a sign of its own.
            OperandKind::Constant(Constant::Number(number)) if number < 0 => return Some(LogFormat::Signed),
            OperandKind::Leaf(leaf) => leaf,
            _ => return None,
        };
        let is_ipv4 = match leaf {
            Leaf::Field(field) => {
                let name = self.field_name(field);
                let is_mac = matches!(name.as_str(), "eth.src" | "eth.dst" | "inner.eth.src" | "inner.eth.dst");
                if is_mac {
                    return Some(LogFormat::Mac);
                }
                let mut parts = name.rsplit('.');
                matches!(parts.next(), Some("src" | "dst")) && parts.next() == Some("ipv4")
            }
            Leaf::Register(i) | Leaf::Old(Destination::Register(i)) => self.names.registers[usize::from(i)].is_ipv4,
            Leaf::Global(i) | Leaf::Old(Destination::Global(i)) => self.names.globals[usize::from(i)].is_ipv4,
            Leaf::Metadata(i) => self.names.metadata[usize::from(i)].is_ipv4,
            Leaf::Now | Leaf::State => false,
        };
        is_ipv4.then_some(LogFormat::Ipv4)
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Stable codes of diagnostics.

use std::fmt;

/// Kind of a diagnostic, shown as `efsm::name`; stable across versions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Code {
    /// A character outside the language.
    UnknownCharacter,
    /// An invalid number, time or address.
    BadLiteral,
    /// Another token was expected here.
    UnexpectedToken,
    /// A brace or parenthesis that is not closed.
    Unclosed,
    /// Expressions nested too deeply.
    TooDeep,
    /// A required part is missing.
    Missing,
    /// A construct of a later version.
    NotAvailable,
    /// An operator outside the language.
    UnknownOperator,
    /// A reserved word used as a name.
    ReservedName,
    /// A name that breaks the naming rules.
    BadName,
    /// A duplicate name or clause.
    Duplicate,
    /// An undeclared name.
    UnknownName,
    /// An unknown packet field.
    UnknownField,
    /// An unknown header.
    UnknownHeader,
    /// Headers that form no packet, or a change that a frame does not support.
    BadHeaders,
    /// An unknown state.
    UnknownState,
    /// An unknown element.
    UnknownElement,
    /// An unknown parameter.
    UnknownParameter,
    /// An unknown type.
    UnknownType,
    /// A parameter without a value.
    UnsetParameter,
    /// An invalid parameter value.
    BadParameter,
    /// A value of the wrong kind.
    WrongKind,
    /// A constant outside of the range of its operand or destination.
    OutOfRange,
    /// A field that cannot be written.
    ReadOnlyField,
    /// A name that is no valid destination.
    NotWritable,
    /// Two writes of the same destination.
    WrittenTwice,
    /// Incompatible widths.
    WidthMismatch,
    /// Signed and unsigned numbers that cannot be compared.
    SignMismatch,
    /// Incompatible clock units.
    TimeUnit,
    /// A time that is too long, too short or not a multiple of its unit.
    BadTime,
    /// A row without a terminal action.
    NoTerminal,
    /// An action after the terminal action.
    AfterTerminal,
    /// A `goto` to the same or an earlier element.
    BackwardGoto,
    /// An invalid flow key.
    BadKey,
    /// A stateful construct in a stateless element, or the reverse.
    WrongElement,
    /// An expression that is no valid condition.
    BadCondition,
    /// An action that `otherwise` does not support.
    BadOtherwise,
    /// A state that no row leads to.
    UnreachableState,
    /// An element that no `goto` leads to.
    UnreachableElement,
    /// A row that earlier rows shadow.
    ShadowedRow,
    /// A condition or row that never or always holds.
    Constant,
    /// An unused declaration.
    Unused,
    /// A file named in the source that cannot be read.
    UnreadableFile,
    /// Contexts that are never removed.
    NeverRemoved,
}

impl Code {
    /// Name of the code in messages.
    pub fn as_str(self) -> &'static str {
        match self {
            Code::UnknownCharacter => "efsm::unknown_character",
            Code::BadLiteral => "efsm::bad_literal",
            Code::UnexpectedToken => "efsm::unexpected_token",
            Code::Unclosed => "efsm::unclosed",
            Code::TooDeep => "efsm::too_deep",
            Code::Missing => "efsm::missing",
            Code::NotAvailable => "efsm::not_available",
            Code::UnknownOperator => "efsm::unknown_operator",
            Code::ReservedName => "efsm::reserved_name",
            Code::BadName => "efsm::bad_name",
            Code::Duplicate => "efsm::duplicate",
            Code::UnknownName => "efsm::unknown_name",
            Code::UnknownField => "efsm::unknown_field",
            Code::UnknownHeader => "efsm::unknown_header",
            Code::BadHeaders => "efsm::bad_headers",
            Code::UnknownState => "efsm::unknown_state",
            Code::UnknownElement => "efsm::unknown_element",
            Code::UnknownParameter => "efsm::unknown_parameter",
            Code::UnknownType => "efsm::unknown_type",
            Code::UnsetParameter => "efsm::unset_parameter",
            Code::BadParameter => "efsm::bad_parameter",
            Code::WrongKind => "efsm::wrong_kind",
            Code::OutOfRange => "efsm::out_of_range",
            Code::ReadOnlyField => "efsm::read_only_field",
            Code::NotWritable => "efsm::not_writable",
            Code::WrittenTwice => "efsm::written_twice",
            Code::WidthMismatch => "efsm::width_mismatch",
            Code::SignMismatch => "efsm::sign_mismatch",
            Code::TimeUnit => "efsm::time_unit",
            Code::BadTime => "efsm::bad_time",
            Code::NoTerminal => "efsm::no_terminal",
            Code::AfterTerminal => "efsm::after_terminal",
            Code::BackwardGoto => "efsm::backward_goto",
            Code::BadKey => "efsm::bad_key",
            Code::WrongElement => "efsm::wrong_element",
            Code::BadCondition => "efsm::bad_condition",
            Code::BadOtherwise => "efsm::bad_otherwise",
            Code::UnreachableState => "efsm::unreachable_state",
            Code::UnreachableElement => "efsm::unreachable_element",
            Code::ShadowedRow => "efsm::shadowed_row",
            Code::Constant => "efsm::constant_condition",
            Code::Unused => "efsm::unused",
            Code::UnreadableFile => "efsm::unreadable_file",
            Code::NeverRemoved => "efsm::never_removed",
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

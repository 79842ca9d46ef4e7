//! The stable codes of diagnostics.

use std::fmt;

/// The kind of a diagnostic, shown as `efsm::name`; stable between versions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Code {
    /// A character that starts no word of the language.
    UnknownCharacter,
    /// A number, time or address that cannot be read.
    BadLiteral,
    /// Another word was expected here.
    UnexpectedToken,
    /// Something opened is not closed.
    Unclosed,
    /// Expressions nested too deeply.
    TooDeep,
    /// Something required is not there.
    Missing,
    /// A construct of a later version.
    NotAvailable,
    /// An operator that the language does not have.
    UnknownOperator,
    /// A reserved word as a name.
    ReservedName,
    /// A name that breaks the rules for names.
    BadName,
    /// A name or clause that is there twice.
    Duplicate,
    /// A name that nothing has.
    UnknownName,
    /// No such packet field.
    UnknownField,
    /// No such header.
    UnknownHeader,
    /// Headers that do not make a packet, or a change that a frame cannot take.
    BadHeaders,
    /// No such state.
    UnknownState,
    /// No such element.
    UnknownElement,
    /// No such parameter.
    UnknownParameter,
    /// No such type.
    UnknownType,
    /// A parameter without a value.
    UnsetParameter,
    /// A parameter value that cannot be used.
    BadParameter,
    /// A value of the wrong kind.
    WrongKind,
    /// A constant outside of what it is compared with or stored in.
    OutOfRange,
    /// A field that cannot be written.
    ReadOnlyField,
    /// Something that cannot be written at all.
    NotWritable,
    /// Two writes of the same destination.
    WrittenTwice,
    /// Widths that do not go together.
    WidthMismatch,
    /// Signed and unsigned numbers that cannot be compared.
    SignMismatch,
    /// Clock units that do not go together.
    TimeUnit,
    /// A time that is too long, too short or inexact.
    BadTime,
    /// A row without a terminal action.
    NoTerminal,
    /// Something after a terminal action.
    AfterTerminal,
    /// `goto` that does not lead forward.
    BackwardGoto,
    /// A flow key that cannot be used.
    BadKey,
    /// A stateful construct in a stateless element, or the reverse.
    WrongElement,
    /// Something that cannot be a condition.
    BadCondition,
    /// Something that `otherwise` cannot do.
    BadOtherwise,
    /// A state that no row leads to.
    UnreachableState,
    /// An element that no `goto` leads to.
    UnreachableElement,
    /// A row that an earlier one hides.
    ShadowedRow,
    /// A condition or row that never or always holds.
    Constant,
    /// Something declared and never used.
    Unused,
    /// A file that the source names and that cannot be read.
    UnreadableFile,
    /// Contexts that nothing removes.
    NeverRemoved,
}

impl Code {
    /// Its name as users see it.
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

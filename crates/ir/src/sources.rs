// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The arguments of helper calls that become effects.

use flowloom_isa::helpers::{self, Implicit, Parameter, Usage};
use flowloom_isa::insn::helper;

use crate::access::is_trace;
use crate::dataflow::Argument;

/// The argument of an effect in registers, or the packet.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Source {
    /// An argument of the helper's signature.
    Register(Parameter),
    /// A number that the helper may ignore, so that it need not be initialised.
    Optional,
    /// The bounds of the packet; takes no register.
    Bounds,
    /// The content of the packet; takes no register.
    Packet,
}

/// The arguments of a helper whose calls become effects.
pub(crate) fn sources(number: i32) -> Option<Vec<Source>> {
    use helpers::Effect as Of;

    let helper = helpers::by_number(number)?;
    if matches!(helper.effect, Of::Probe | Of::TailCall | Of::MovePacket | Of::Packet | Of::Lock | Of::Callback)
        || number == helper::CSUM_DIFF
    {
        return None;
    }
    let mut sources: Vec<Source> = helper.parameters.iter().copied().map(Source::Register).collect();
    match helper.implicit {
        Implicit::Nothing => {}
        Implicit::Bounds => sources.push(Source::Bounds),
        Implicit::Packet => sources.push(Source::Packet),
        Implicit::Registers => sources.resize(5, Source::Optional),
    }
    Some(sources)
}

pub(crate) fn fits_helper(number: i32, arguments: &[Argument]) -> bool {
    if number == helper::TAIL_CALL {
        return matches!(arguments, [Argument::Map(_), Argument::Number]);
    }
    let Some(sources) = sources(number) else { return false };
    // A trace call may keep no arguments.
    if is_trace(number) && arguments.is_empty() {
        return true;
    }
    let mut rest = arguments.iter().copied().peekable();
    for source in &sources {
        let fits = match source {
            Source::Bounds | Source::Packet => {
                let has_ends = rest.next() == Some(Argument::Head) && rest.next() == Some(Argument::Tail);
                rest.next_if_eq(&Argument::Kept);
                while let Source::Packet = source
                    && rest.next_if(|next| matches!(next, Argument::Base)).is_some()
                {
                    while rest.next_if(|next| matches!(next, Argument::Laid(_))).is_some() {}
                }
                while let Source::Packet = source
                    && rest.next_if(|next| matches!(next, Argument::Byte(_))).is_some()
                {}
                has_ends
            }
            Source::Optional => rest.next() == Some(Argument::Number),
            Source::Register(parameter) => rest.next().is_some_and(|argument| fits(*parameter, argument)),
        };
        if !fits {
            return false;
        }
    }
    // The bytes of a record come last.
    let has_record = sources.iter().any(|source| matches!(source, Source::Register(Parameter::Record)));
    rest.all(|argument| matches!(argument, Argument::Stored(_)) && has_record)
}

/// Whether an argument in a register is of the kind that a helper takes.
fn fits(parameter: Parameter, argument: Argument) -> bool {
    match parameter {
        Parameter::Number | Parameter::Length { .. } | Parameter::ConstantLength | Parameter::Record => {
            argument == Argument::Number
        }
        Parameter::Context => argument == Argument::Context,
        // A map from a map of maps is a number.
        Parameter::Map(..) => matches!(argument, Argument::Map(_) | Argument::Number),
        Parameter::Key | Parameter::Value | Parameter::Sized(Usage::Read) | Parameter::Text => {
            matches!(argument, Argument::Read(_))
        }
        Parameter::Sized(_) => matches!(argument, Argument::Changed(_)),
        Parameter::Fixed { bytes, .. } => argument == Argument::Changed(bytes as u16),
        Parameter::Any | Parameter::Lock | Parameter::Callback | Parameter::CallbackContext => false,
    }
}

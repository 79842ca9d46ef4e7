// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Parameters that no machine can have.

/// A failure of this crate.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OverlayError {
    /// A parameter out of range.
    #[error("`{parameter}` is {found}, a machine takes {least} to {most}")]
    Parameter {
        /// The parameter's name.
        parameter: &'static str,
        /// Its value.
        found: u64,
        /// The least value that is accepted.
        least: u64,
        /// The greatest value that is accepted.
        most: u64,
    },
}

/// Checks that each parameter, given as name, value, least and greatest accepted value, is in range.
pub(crate) fn check_ranges(parameters: &[(&'static str, u64, u64, u64)]) -> Result<(), OverlayError> {
    match parameters.iter().find(|(_, found, least, most)| !(*least..=*most).contains(found)) {
        Some(&(parameter, found, least, most)) => Err(OverlayError::Parameter { parameter, found, least, most }),
        None => Ok(()),
    }
}

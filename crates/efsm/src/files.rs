// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Files that a source refers to. The compiler opens no file: its caller provides their texts.

use std::collections::BTreeMap;

/// Provides the texts of files that a source refers to, as in `set blocked = file("blocked.txt");`.
pub trait Files {
    /// The text of the file called `name` in the source.
    ///
    /// # Errors
    /// Why there is none, in a few words.
    fn read(&self, name: &str) -> Result<String, String>;
}

/// No files.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoFiles;

impl Files for NoFiles {
    fn read(&self, _: &str) -> Result<String, String> {
        Err("a source without a path has no files".to_owned())
    }
}

/// Texts in memory, by name.
impl Files for BTreeMap<String, String> {
    fn read(&self, name: &str) -> Result<String, String> {
        self.get(name).cloned().ok_or_else(|| "there is no such file".to_owned())
    }
}

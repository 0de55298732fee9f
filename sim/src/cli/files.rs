//! Replay files on disk.

use std::fs;
use std::path::{Path, PathBuf};

use super::Trouble;
use crate::replay::ReplayFile;

/// Reads a file.
pub(super) fn read(path: &Path) -> Result<ReplayFile, Trouble> {
    let named = |problem| Trouble::Unreadable { path: path.to_path_buf(), problem };
    let text = fs::read_to_string(path).map_err(|error| named(error.to_string()))?;
    text.parse().map_err(|error: crate::replay::ReplayError| named(error.to_string()))
}

/// Writes a file, and the folders it is in. It is there whole or, as it was, not at all.
pub(super) fn write(path: &Path, file: &ReplayFile) -> Result<(), Trouble> {
    let named = |error| Trouble::Unwritable { path: path.to_path_buf(), error };
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        fs::create_dir_all(folder).map_err(named)?;
    }
    let mut beside = path.as_os_str().to_owned();
    beside.push(".part");
    let beside = PathBuf::from(beside);
    fs::write(&beside, file.to_string()).map_err(named)?;
    fs::rename(&beside, path).map_err(named)
}

/// Where a shrunk file goes if nobody says where: `name.txt` becomes `name.shrunk.txt`.
pub(super) fn shrunk(path: &Path) -> PathBuf {
    path.with_extension("shrunk.txt")
}

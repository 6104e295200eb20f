//! Typed names of options.

use std::fmt;
use std::marker::PhantomData;

/// An option's name, with the type that its values are read as: [`Settings`](crate::Settings) takes
/// nothing else, so that neither a misspelt name nor a wrong type compiles. There is one for each option, in
/// [`keys`](crate::keys).
///
/// | kind of option | key |
/// |---|---|
/// | text, path, set of relays | `Key<String>` |
/// | whole number, amount of information | `Key<i64>` |
/// | length of time | `Key<Duration>` |
/// | fraction | `Key<f64>` |
/// | 0 or 1 | `Key<bool>` |
/// | 0, 1 or auto | `Key<Option<bool>>` |
/// | number or auto | `Key<Option<i64>>` |
/// | words separated by commas | `Key<Vec<String>>` |
/// | lines | `Key<Vec<ListLine>>` |
/// | lines of another option's list, or obsolete | `Key<()>`: no value of its own |
pub struct Key<T> {
    index: usize,
    name: &'static str,
    value: PhantomData<fn() -> T>,
}

impl<T> Key<T> {
    /// The key of the option at this place of the table.
    pub(crate) const fn new(index: usize, name: &'static str) -> Self {
        Self {
            index,
            name,
            value: PhantomData,
        }
    }

    /// The option's name, as in torrc.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.name
    }

    /// Its place in the table.
    pub(crate) const fn index(self) -> usize {
        self.index
    }

    /// The option without its type, for lists of several types.
    pub(crate) const fn untyped(self) -> Key<()> {
        Key::new(self.index, self.name)
    }
}

impl<T> Clone for Key<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Key<T> {}

impl<T> fmt::Display for Key<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl<T> fmt::Debug for Key<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

//! Numbers that Python gives: whole ones in their bounds, or one error that names the argument, the
//! value and the bounds.

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyFloat, PyInt};
use weft_stats::bounds::{Bounds, Number};

/// A value that was given for a whole number. [`Given::check`] judges it, where its bounds are
/// known.
#[derive(Clone)]
pub(crate) struct Given {
    /// `None`: not a whole number, or one that no bounds allow.
    number: Option<u64>,
    /// As Python writes it.
    shown: String,
    /// Of numbers the value is wrong, of all else the type.
    is_number: bool,
}

impl From<u64> for Given {
    fn from(number: u64) -> Given {
        Given {
            number: Some(number),
            shown: number.to_string(),
            is_number: true,
        }
    }
}

impl<'py> FromPyObject<'_, 'py> for Given {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Given> {
        Ok(Given {
            number: object.extract().ok(),
            shown: object.repr()?.to_string(),
            is_number: object.is_instance_of::<PyInt>() || object.is_instance_of::<PyFloat>(),
        })
    }
}

impl Given {
    /// The number for argument `name`.
    ///
    /// # Errors
    ///
    /// `ValueError`; `TypeError` if it is not a number at all.
    pub(crate) fn check<T: Number + TryFrom<u64>>(
        &self,
        name: &str,
        bounds: Bounds<T>,
    ) -> PyResult<T> {
        let number = self.number.and_then(|number| T::try_from(number).ok());
        number
            .filter(|number| bounds.allow(*number))
            .ok_or_else(|| {
                let text = format!("{name} {}: {bounds}", self.shown);
                match self.is_number {
                    true => PyValueError::new_err(text),
                    false => PyTypeError::new_err(text),
                }
            })
    }
}

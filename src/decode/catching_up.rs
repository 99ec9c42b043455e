//! Answers that were decoded before more was known of a forgotten person, and are stored after that: what is kept out now
//! goes out of their rows, as if they had been decoded since.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, ListArray, RecordBatch, StringArray};
use arrow::datatypes::DataType;
use arrow::error::ArrowError;

use super::{Decoded, Forgotten};
use crate::catalog::EXTRA_COLUMN;
use crate::error::{Error, Kind, Result};

impl Decoded {
    /// Takes out what is on the list, children's included, unless it was decoded with this one.
    ///
    /// # Errors
    /// `Kind::Internal`: the columns do not make a batch any more.
    pub(crate) fn catch_up(&mut self, list: &Forgotten) -> Result<()> {
        for child in &mut self.children {
            child.catch_up(list)?;
        }
        if self.list >= list.generation() {
            return Ok(());
        }
        self.list = list.generation();
        for value in self.rejects.iter_mut().filter_map(|reject| reject.value.as_mut()) {
            *value = list.json_without(value);
        }
        for drift in &mut self.drift {
            drift.field = list.name_without(std::mem::take(&mut drift.field));
            if let Some(example) = &mut drift.example {
                *example = list.json_without(example);
            }
        }
        self.rows = self.rows_without(list).map_err(|e| {
            Error::caused(Kind::Internal, "rows do not fit together without what is forgotten", e)
        })?;
        Ok(())
    }

    fn rows_without(&self, list: &Forgotten) -> Result<RecordBatch, ArrowError> {
        let schema = self.rows.schema();
        let mut columns: Vec<ArrayRef> = Vec::with_capacity(schema.fields().len());
        for (field, array) in schema.fields().iter().zip(self.rows.columns()) {
            let column = self.resource.column(field.name());
            let is_classed = column.is_some_and(|column| column.class.is_some());
            let without: ArrayRef = if field.name() == EXTRA_COLUMN {
                let texts = array.as_string::<i32>().iter();
                Arc::new(texts.map(|t| t.map(|t| list.json_without(t))).collect::<StringArray>())
            } else if column.is_none_or(|column| self.resource.stays_known(column)) {
                Arc::clone(array)
            } else if let DataType::List(item) = field.data_type() {
                let lists = array.as_list::<i32>();
                Arc::new(ListArray::try_new(
                    Arc::clone(item),
                    lists.offsets().clone(),
                    Arc::new(texts_without(lists.values(), list, is_classed)),
                    lists.nulls().cloned(),
                )?)
            } else {
                Arc::new(texts_without(array, list, is_classed))
            };
            columns.push(without);
        }
        RecordBatch::try_new(schema, columns)
    }
}

fn texts_without(array: &ArrayRef, list: &Forgotten, is_classed: bool) -> StringArray {
    let texts = array.as_string::<i32>().iter();
    texts.map(|text| text.and_then(|t| list.cell_without(t, is_classed))).collect()
}

//! An object that is too large for one call.

use bytes::Bytes;
use object_store::{MultipartUpload, PutPayload};

use super::runtime;

/// A large object under way. What is not completed is given up, so that its parts are not kept, and paid for.
pub(super) struct Parts(Option<Box<dyn MultipartUpload>>);

impl Parts {
    pub(super) fn of(upload: Box<dyn MultipartUpload>) -> Parts {
        Parts(Some(upload))
    }

    /// One more; in order.
    pub(super) async fn put(&mut self, content: Bytes) -> object_store::Result<()> {
        match &mut self.0 {
            Some(upload) => upload.put_part(PutPayload::from(content)).await,
            None => Ok(()),
        }
    }

    /// From now on all of it is seen.
    pub(super) async fn complete(mut self) -> object_store::Result<()> {
        if let Some(upload) = &mut self.0 {
            upload.complete().await?;
        }
        self.0 = None;
        Ok(())
    }
}

impl Drop for Parts {
    fn drop(&mut self) {
        if let (Some(mut upload), Ok(runtime)) = (self.0.take(), runtime()) {
            // Where that fails too, or the process ends, a rule of the bucket has to do it.
            runtime.spawn(async move { upload.abort().await });
        }
    }
}

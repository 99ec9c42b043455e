//! Publishing that waits for something else first.

use std::pin::pin;
use std::time::Instant;

use super::Place;
use crate::session::{Forms, When};

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_that_is_waited_for_is_no_part_of_publishing() {
    let place = Place::mirrored().await;
    let mut backup = pin!(place.session.backup(place.folder.path().join("a.backup")));
    assert!(futures::poll!(&mut backup).is_pending());
    let mut publishing = pin!(place.session.publish_here(Forms::Both, When::Always));
    assert!(futures::poll!(&mut publishing).is_pending());
    let waiting = Instant::now();
    backup.await.unwrap();
    let began = publishing.await.unwrap().unwrap().began;
    assert!(began >= waiting, "the wait is taken for work");
}

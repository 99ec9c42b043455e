//! What follows an attempt (reference 6.3).

/// How often a delivery is repeated after a server error or an answer that took too long.
const RETRIES: u32 = 5;

/// What a subscriber did with an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    /// 0 where no answer came.
    Status(u16),
    TooSlow,
}

/// What is done with the delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    Delivered,
    Failed,
    /// It is sent again after so many minutes.
    Again {
        minutes: u32,
        /// Whether this is one of the limited retries.
        counts: bool,
    },
}

/// What follows an answer, after so many of the limited retries.
pub(super) fn after(answer: Answer, retries: u32) -> Next {
    match answer {
        Answer::Status(0..=199) => Next::Again { minutes: 1, counts: false },
        Answer::Status(200..=399) => Next::Delivered,
        Answer::Status(400..=499) => Next::Failed,
        Answer::Status(500..=599) | Answer::TooSlow if retries < RETRIES => {
            Next::Again { minutes: retries + 1, counts: true }
        }
        // The table ends at 599.
        Answer::Status(500..) | Answer::TooSlow => Next::Failed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_follows_an_answer_is_the_references_table() {
        let soon = Next::Again { minutes: 1, counts: false };
        let retry = |minutes| Next::Again { minutes, counts: true };
        for (status, expected) in [
            (0, soon),
            (1, soon),
            (100, soon),
            (199, soon),
            (200, Next::Delivered),
            (204, Next::Delivered),
            (299, Next::Delivered),
            (300, Next::Delivered),
            (302, Next::Delivered),
            (399, Next::Delivered),
            (400, Next::Failed),
            (404, Next::Failed),
            (429, Next::Failed),
            (499, Next::Failed),
            (500, retry(1)),
            (503, retry(1)),
            (599, retry(1)),
            (600, Next::Failed),
            (999, Next::Failed),
        ] {
            assert_eq!(after(Answer::Status(status), 0), expected, "{status}");
        }
        // No answer is asked for again however often.
        assert_eq!(after(Answer::Status(0), 1_000), soon);
    }

    #[test]
    fn server_errors_and_slow_answers_are_retried_five_times_a_minute_later_each_time() {
        for answer in [Answer::Status(500), Answer::Status(599), Answer::TooSlow] {
            let followed: Vec<Next> = (0..7).map(|retries| after(answer, retries)).collect();
            let mut expected: Vec<Next> =
                (1..=5).map(|minutes| Next::Again { minutes, counts: true }).collect();
            expected.extend([Next::Failed, Next::Failed]);
            assert_eq!(followed, expected, "{answer:?}");
        }
    }
}

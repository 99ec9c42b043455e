//! How far a case and its settlement have come.

/// Status of a case (field notes, `CaseStatusType`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Status {
    Initial,
    Draft,
    General,
    Active,
    Ready,
    BiddingStarted,
    Reserved,
    SoldWithConditions,
    Sold,
    DocumentDelivery,
    Followup,
    Archived,
    Canceled,
    Lost,
}

impl Status {
    pub(crate) const ALL: [Status; 14] = [
        Status::Initial,
        Status::Draft,
        Status::General,
        Status::Active,
        Status::Ready,
        Status::BiddingStarted,
        Status::Reserved,
        Status::SoldWithConditions,
        Status::Sold,
        Status::DocumentDelivery,
        Status::Followup,
        Status::Archived,
        Status::Canceled,
        Status::Lost,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Status::Initial => "Initial",
            Status::Draft => "Draft",
            Status::General => "General",
            Status::Active => "Active",
            Status::Ready => "Ready",
            Status::BiddingStarted => "BiddingStarted",
            Status::Reserved => "Reserved",
            Status::SoldWithConditions => "SoldWithConditions",
            Status::Sold => "Sold",
            Status::DocumentDelivery => "DocumentDelivery",
            Status::Followup => "Followup",
            Status::Archived => "Archived",
            Status::Canceled => "Canceled",
            Status::Lost => "Lost",
        }
    }

    /// The field notes' `CasePhaseType`.
    pub(crate) fn phase(self, published: bool) -> &'static str {
        match self {
            Status::Initial | Status::Draft | Status::General => "Registered",
            Status::Active | Status::Ready | Status::BiddingStarted | Status::Reserved => {
                if published {
                    "Published"
                } else {
                    "Activated"
                }
            }
            Status::SoldWithConditions | Status::Sold => "Sold",
            Status::DocumentDelivery | Status::Followup => "Transferred",
            Status::Archived => "Archived",
            Status::Canceled | Status::Lost => "Canceled",
        }
    }
}

/// State of a settlement (field notes, `SettlementStatusType`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Settlement {
    Waiting,
    General,
    Transferred,
    Received,
    DeedSent,
    Ready,
    Completed,
    Archived,
}

impl Settlement {
    pub(crate) const ALL: [Settlement; 8] = [
        Settlement::Waiting,
        Settlement::General,
        Settlement::Transferred,
        Settlement::Received,
        Settlement::DeedSent,
        Settlement::Ready,
        Settlement::Completed,
        Settlement::Archived,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Settlement::Waiting => "Waiting",
            Settlement::General => "General",
            Settlement::Transferred => "TransferredToSettlement",
            Settlement::Received => "SettlementReceived",
            Settlement::DeedSent => "DeedSentToRegistration",
            Settlement::Ready => "ReadyForSettlement",
            Settlement::Completed => "SettlementCompleted",
            Settlement::Archived => "Archived",
        }
    }
}

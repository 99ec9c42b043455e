//! What an object store's errors mean, in words that hold no credentials: an answer's body may repeat an access
//! key, and the address of a call may end in a signature.

use std::error::Error as StdError;

use object_store::client::{HttpError, HttpErrorKind};

use crate::config::BucketUrl;
use crate::error::{Error, Kind};
use crate::text::printable;

/// Longer explanations are cut.
const MOST_CHARACTERS: usize = 200;

/// An error of a call.
pub(super) fn failed(what: &str, address: &str, error: &object_store::Error) -> Error {
    Error::new(Kind::ObjectStore, format!("cannot {what} {address}: {}", reason(error)))
}

/// An error of the settings.
pub(super) fn unusable(url: &BucketUrl, error: &object_store::Error) -> Error {
    // What is not understood of a key file may be the key: the first words tell enough.
    let texts = texts(error);
    let said = texts.get(1).or(texts.first()).map_or("", String::as_str);
    let said = shortened(said.split(": ").next().unwrap_or_default());
    let text = "its settings in the environment cannot be used";
    Error::new(Kind::Config, format!("publish.parquet = {url}: {text}: {said}"))
}

/// Whether the object is not there, but the bucket is.
pub(super) fn is_no_object(error: &object_store::Error) -> bool {
    let bucket = ["NoSuchBucket", "ContainerNotFound", "The specified bucket does not exist"];
    let says = |text: &str| texts(error).iter().any(|said| said.contains(text));
    matches!(error, object_store::Error::NotFound { .. }) && !bucket.into_iter().any(says)
}

/// Whether the store does not know this kind of call.
pub(super) fn is_unknown_call(error: &object_store::Error) -> bool {
    use object_store::Error::{NotImplemented, NotSupported};
    matches!(error, NotImplemented { .. } | NotSupported { .. })
        || texts(error).iter().any(|said| said.contains("status code: 501"))
}

/// Why it failed.
fn reason(error: &object_store::Error) -> String {
    let texts = texts(error);
    let called = texts.iter().find_map(|text| called(text));
    if let Some(answer) = texts.iter().find_map(|text| answer(text)) {
        return format!("{} answers {answer}", called.as_deref().unwrap_or("it"));
    }
    let at = called.map(|called| format!(" ({called})")).unwrap_or_default();
    match transport(error) {
        Some(HttpErrorKind::Timeout) => format!("no answer in time{at}"),
        Some(HttpErrorKind::Connect | HttpErrorKind::Request) => format!("no connection{at}"),
        Some(HttpErrorKind::Interrupted) => format!("the connection broke{at}"),
        Some(HttpErrorKind::Decode) => format!("the answer cannot be read{at}"),
        _ => shortened(texts.last().map_or("", String::as_str)),
    }
}

fn chain(error: &object_store::Error) -> Vec<&(dyn StdError + 'static)> {
    let first: &(dyn StdError + 'static) = error;
    std::iter::successors(Some(first), |error| (*error).source()).collect()
}

fn texts(error: &object_store::Error) -> Vec<String> {
    chain(error).into_iter().map(ToString::to_string).collect()
}

fn transport(error: &object_store::Error) -> Option<HttpErrorKind> {
    chain(error).into_iter().find_map(|e| e.downcast_ref::<HttpError>()).map(HttpError::kind)
}

/// The host that was called, of `Error performing PUT http://host/... in 3s`: credentials may come from another
/// one than the bucket's.
fn called(text: &str) -> Option<String> {
    let (_, call) = text.split_once("Error performing ")?;
    let url = call.split_whitespace().nth(1).and_then(|url| url::Url::parse(url).ok())?;
    let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
    Some(format!("{}{port}", url.host_str()?))
}

/// Of an answer its status, and the code and words that the store gives with it.
fn answer(text: &str) -> Option<String> {
    let (_, said) = text.split_once("Server returned ")?;
    let (status, body) = match said.split_once("status code: ") {
        Some((_, status)) => status.split_once(": ").unwrap_or((status, "")),
        None => ("an error", said),
    };
    let within = |tag: &str| {
        let (_, rest) = body.split_once(&format!("<{tag}>"))?;
        Some(rest.split_once(&format!("</{tag}>"))?.0)
    };
    let words: Vec<&str> = [within("Code"), within("Message")].into_iter().flatten().collect();
    let words = if words.is_empty() { String::new() } else { format!(" ({})", words.join(": ")) };
    Some(shortened(&format!("{}{words}", status.trim())))
}

/// One line without addresses' queries.
fn shortened(text: &str) -> String {
    let words = text.split_whitespace().map(|word| match word.find("://") {
        Some(_) => word.split(['?', '#']).next().unwrap_or_default(),
        None => word,
    });
    let line = words.collect::<Vec<_>>().join(" ");
    printable(&line.chars().take(MOST_CHARACTERS).collect::<String>()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Said(&'static str);

    impl std::fmt::Display for Said {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str(self.0)
        }
    }

    impl StdError for Said {}

    fn of(text: &'static str) -> String {
        let error = object_store::Error::Generic { store: "S3", source: Box::new(Said(text)) };
        failed("write", "s3://mirror/x", &error).to_string()
    }

    #[test]
    fn an_answer_is_told_by_its_status_and_code_and_nothing_else_of_it() {
        let refused = "Error performing PUT https://mirror.example.com/x?X-Amz-Signature=s3cret in 12ms - Server \
                       returned non-2xx status code: 403 Forbidden: <?xml version=\"1.0\"?><Error><Code>\
                       SignatureDoesNotMatch</Code><Message>It does not match.</Message><AWSAccessKeyId>AKIAs3cret\
                       </AWSAccessKeyId><StringToSign>s3cret</StringToSign></Error>";
        assert_eq!(
            of(refused),
            "cannot write s3://mirror/x: mirror.example.com answers 403 Forbidden (SignatureDoesNotMatch: It \
             does not match.)"
        );
        let json =
            "Server returned non-2xx status code: 507 Insufficient Storage: {\"key\": \"s3cret\"}";
        assert_eq!(of(json), "cannot write s3://mirror/x: it answers 507 Insufficient Storage");
    }

    #[test]
    fn what_is_no_answer_is_told_without_the_end_of_an_address() {
        let text = of("cannot fetch https://sts.example.com/?WebIdentityToken=s3cret\nfor it");
        assert_eq!(
            text,
            "cannot write s3://mirror/x: cannot fetch https://sts.example.com/ for it"
        );
        assert!(of(Box::leak("x".repeat(9000).into_boxed_str())).len() < 300);
    }

    #[test]
    fn a_missing_bucket_is_no_missing_object() {
        let of = |text| object_store::Error::NotFound {
            path: "x".to_owned(),
            source: Box::new(Said(text)),
        };
        assert!(is_no_object(&of("404 <Code>NoSuchKey</Code>")));
        assert!(!is_no_object(&of("404 <Code>NoSuchBucket</Code>")));
    }
}

//! Ambiguous requests, which a proxy in front of the server might understand differently.
//!
//! They hide a request for `/smuggled`, which must not reach the handler.

use crate::table::{Case, check, last, refused, refused_within, served};
use sinew_http::Limits;

/// Fields that tell the length twice. By one of the two lengths, the body contains a request.
fn twice(claim: &str, status: u16, fields: &str) -> Case {
    let sent =
        format!("POST / HTTP/1.1|Host: a|{fields}||0||GET /smuggled HTTP/1.1|Host: a|X: y||");
    refused(claim, status, sent)
}

/// A chunked body that other parsers might end elsewhere.
fn within(claim: &str, body: &str) -> Case {
    let sent = format!("POST / HTTP/1.1|Host: a|Transfer-Encoding: chunked||{body}");
    refused_within(claim, 400, sent)
}

#[test]
fn ambiguous_requests_are_refused() {
    check(
        Limits::default(),
        &[
            twice("CL.TE is refused", 400, "Content-Length: 6|Transfer-Encoding: chunked"),
            twice("TE.CL is refused", 400, "Transfer-Encoding: chunked|Content-Length: 4"),
            twice("TE.TE is refused", 400, "Transfer-Encoding: chunked|Transfer-Encoding: cow"),
            twice(
                "TE.TE in the other order is refused",
                501,
                "Transfer-Encoding: cow|Transfer-Encoding: chunked",
            ),
            twice("CL.CL is refused", 400, "Content-Length: 5|Content-Length: 40"),
            twice("CL.0 is refused", 400, "Content-Length: 5|Content-Length: 0"),
            twice(
                "a coding with a space before the colon is refused",
                400,
                "Content-Length: 5|Transfer-Encoding : chunked",
            ),
            twice(
                "a coding with a tab after its name is refused",
                400,
                "Content-Length: 5|Transfer-Encoding\t: chunked",
            ),
            twice(
                "a coding behind a CR is refused",
                400,
                "Content-Length: 5|X: y\rTransfer-Encoding: chunked",
            ),
            twice(
                "a coding behind a line feed is refused",
                400,
                "Content-Length: 5|X: y\nTransfer-Encoding: chunked",
            ),
            twice(
                "a coding behind a NUL is refused",
                400,
                "Content-Length: 5|X: y\0Transfer-Encoding: chunked",
            ),
            twice(
                "a coding in a line that goes on is refused",
                400,
                "Content-Length: 5|X: y| Transfer-Encoding: chunked",
            ),
            twice(
                "a coding that goes on is refused",
                400,
                "Content-Length: 5|Transfer-Encoding:| chunked",
            ),
            twice(
                "a coding behind a control character is refused",
                400,
                "Transfer-Encoding: \x01chunked",
            ),
            twice(
                "a coding behind a space in its name is refused",
                400,
                "Content-Length: 5| Transfer-Encoding: chunked",
            ),
            twice(
                "a coding behind something that is no letter is refused",
                400,
                "Content-Length: 5|\u{feff}Transfer-Encoding: chunked",
            ),
            twice("a coding with a quote is refused", 501, "Transfer-Encoding: 'chunked'"),
            twice("a length with a sign is refused", 400, "Content-Length: +5"),
            twice("a length behind a NUL is refused", 400, "Content-Length: 5\0"),
            twice(
                "a length that wraps around is refused",
                400,
                "Content-Length: 18446744073709551621",
            ),
            refused(
                "a Host behind a Host is refused",
                400,
                "GET / HTTP/1.1|Host: a|Host : smuggled||",
            ),
            refused(
                "a second first line is refused",
                400,
                "GET / HTTP/1.1|GET /smuggled HTTP/1.1|Host: a||",
            ),
            refused(
                "a chunked body of HTTP/1.0 is refused",
                400,
                "POST / HTTP/1.0|Connection: keep-alive|Transfer-Encoding: chunked||0||GET /smuggled HTTP/1.0||",
            ),
            within(
                "a chunk behind a line feed is refused",
                "5\nhello|0||GET /smuggled HTTP/1.1|Host: a||",
            ),
            within(
                "an extension with a line feed is refused",
                "2;\nxx|4c|0||GET /smuggled HTTP/1.1|Host: a||",
            ),
            within(
                "a chunk that ends without a CR is refused",
                "2|hi\n0||GET /smuggled HTTP/1.1|Host: a||",
            ),
            within(
                "a chunk that ends with two other bytes is refused",
                "2|hixx0||GET /smuggled HTTP/1.1|Host: a||",
            ),
            within(
                "a size that wraps around is refused",
                "10000000000000002|hi|0||GET /smuggled HTTP/1.1|Host: a||",
            ),
            within(
                "a trailer that ends with a line feed is refused",
                "0|A: b\n\nGET /smuggled HTTP/1.1|Host: a||",
            ),
            within("an end that is a CR is refused", "0|\r\rGET /smuggled HTTP/1.1|Host: a||"),
        ],
    );
}

#[test]
fn unambiguous_requests_hide_nothing() {
    check(
        Limits::default(),
        &[
            served(
                "a request in a body of known length is data",
                "POST / HTTP/1.1|Host: a|Content-Length: 27||GET /smuggled HTTP/1.1|a|",
                &["POST / [GET /smuggled HTTP/1.1\r\na\r\n]"],
            ),
            served(
                "a request in a chunk is data",
                "POST / HTTP/1.1|Host: a|Transfer-Encoding: chunked||1b|GET /smuggled HTTP/1.1|a||0||",
                &["POST / [GET /smuggled HTTP/1.1\r\na\r\n]"],
            ),
            served(
                "a field of a similar name is none",
                "POST / HTTP/1.1|Host: a|Content_Length: 5|Transfer_Encoding: chunked|X-Content-Length: 7||",
                &["POST / []"],
            ),
            served(
                "an option does not take the length away",
                "POST / HTTP/1.1|Host: a|Connection: content-length|Content-Length: 5||hello",
                &["POST / [hello]"],
            ),
            served(
                "another path in a field is none",
                "GET /a HTTP/1.1|Host: a|X-Original-URL: /smuggled|X-Rewrite-URL: /smuggled||",
                &["GET /a []"],
            ),
            served(
                "another method in a field is none",
                "POST /a HTTP/1.1|Host: a|X-HTTP-Method-Override: DELETE||",
                &["POST /a []"],
            ),
            last(
                "a body of HTTP/1.0 without a length is none",
                "POST / HTTP/1.0||GET /smuggled HTTP/1.0||",
                &["POST / []"],
            ),
        ],
    );
}

//! The length of a request body, as its head tells it.

use crate::table::{Case, check, refused, served};
use sinew_http::Limits;

fn length(claim: &str, value: &str) -> Case {
    let sent = format!("POST / HTTP/1.1|Host: a|Content-Length:{value}||hello");
    served(claim, sent, &["POST / [hello]"])
}

fn bad_length(claim: &str, value: &str) -> Case {
    refused(claim, 400, format!("POST / HTTP/1.1|Host: a|Content-Length:{value}||hello"))
}

fn coding(claim: &str, value: &str) -> Case {
    let sent = format!("POST / HTTP/1.1|Host: a|Transfer-Encoding:{value}||5|hello|0||");
    served(claim, sent, &["POST / [hello]"])
}

fn bad_coding(claim: &str, status: u16, value: &str) -> Case {
    let sent = format!("POST / HTTP/1.1|Host: a|Transfer-Encoding:{value}||5|hello|0||");
    refused(claim, status, sent)
}

/// A request with these fields besides the `Host`, and a chunked body.
fn bad_fields(claim: &str, fields: &str) -> Case {
    refused(claim, 400, format!("POST / HTTP/1.1|Host: a|{fields}||5|hello|0||"))
}

#[test]
fn content_lengths_are_numbers() {
    check(
        Limits::default(),
        &[
            length("a length is a number", " 5"),
            length("a length may have zeros before it", " 000005"),
            length("space around a length is no part of it", " \t5 \t"),
            length("no space is needed before a length", "5"),
            served(
                "a length of zero is no body",
                "POST / HTTP/1.1|Host: a|Content-Length: 0||",
                &["POST / []"],
            ),
            served("no length is no body", "POST / HTTP/1.1|Host: a||", &["POST / []"]),
            served(
                "a GET may have a body",
                "GET / HTTP/1.1|Host: a|content-length: 5||hello",
                &["GET / [hello]"],
            ),
            served(
                "a body may have any bytes",
                b"PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 7\r\n\r\n\0\r\n\r\n\x01|",
                &["PUT / [\0\r\n\r\n\x01|]"],
            ),
            served(
                "a body that looks like a request is none",
                "POST / HTTP/1.1|Host: a|Content-Length: 35||GET /smuggled HTTP/1.1|Host: a||",
                &["POST / [GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n]"],
            ),
        ],
    );
}

#[test]
fn other_content_lengths_are_refused() {
    check(
        Limits::default(),
        &[
            bad_length("an empty length is refused", ""),
            bad_length("a length with a plus is refused", " +5"),
            bad_length("a length with a minus is refused", " -5"),
            bad_length("minus zero is refused", " -0"),
            bad_length("a length in hexadecimal is refused", " 0x5"),
            bad_length("hexadecimal digits are refused", " a"),
            bad_length("a space within a length is refused", " 5 5"),
            bad_length("a list of lengths is refused", " 5,5"),
            bad_length("a list of equal lengths is refused", " 5, 5"),
            bad_length("a list with an empty member is refused", " 5,"),
            bad_length("a fraction is refused", " 5.0"),
            bad_length("an exponent is refused", " 5e0"),
            bad_length("a parameter is refused", " 5;a"),
            bad_length("a quoted length is refused", " \"5\""),
            bad_length("an underscore is refused", " 5_0"),
            bad_length("a word is refused", " five"),
            bad_length("a digit of another alphabet is refused", " \u{665}"),
            bad_length("a length that no number holds is refused", " 18446744073709551616"),
            bad_length("a length that wraps around is refused", " 18446744073709551621"),
            bad_length("a length of many digits is refused", " 99999999999999999999999999999999"),
            bad_fields("two lengths are refused", "Content-Length: 5|Content-Length: 6"),
            bad_fields("two equal lengths are refused", "Content-Length: 5|content-length: 5"),
            bad_fields(
                "a second length that is empty is refused",
                "Content-Length: 5|Content-Length:",
            ),
            bad_fields("a space before the colon is refused", "Content-Length : 5"),
            bad_fields("a length that goes on is refused", "Content-Length: 5| 5"),
            bad_fields("a length after a fold is refused", "Content-Length:| 5"),
            refused(
                "a length that is wrong in HTTP/1.0 is refused",
                400,
                "POST / HTTP/1.0|Content-Length: +5||hello",
            ),
            refused(
                "the largest length there is is too large",
                413,
                "POST / HTTP/1.1|Host: a|Content-Length: 18446744073709551615||hello",
            ),
        ],
    );
}

#[test]
fn transfer_codings_are_checked() {
    check(
        Limits::default(),
        &[
            coding("chunked is known", " chunked"),
            coding("chunked has no case", " cHUNKED"),
            coding("space around a coding is no part of it", "\t chunked \t"),
            coding("empty members of a list are skipped", " , chunked ,"),
            bad_coding("gzip is answered with 501", 501, " gzip"),
            bad_coding("gzip before chunked is answered with 501", 501, " gzip, chunked"),
            bad_coding("identity is answered with 501", 501, " identity"),
            bad_coding("a coding nobody knows is answered with 501", 501, " xchunked"),
            bad_coding("a parameter of chunked is answered with 501", 501, " chunked;a=b"),
            bad_coding("chunked in quotes is answered with 501", 501, " \"chunked\""),
            bad_coding("two words are answered with 501", 501, " chunked chunked"),
            bad_coding("chunked before gzip is refused", 400, " chunked, gzip"),
            bad_coding("chunked before identity is refused", 400, " chunked, identity"),
            bad_coding("chunked twice is refused", 400, " chunked, chunked"),
            bad_coding("no coding is refused", 400, ""),
            bad_coding("a list of nothing is refused", 400, " ,"),
            bad_coding("a vertical tab before chunked is refused", 400, " \x0bchunked"),
            bad_coding("a NUL after chunked is refused", 400, " chunked\0"),
            bad_coding("a coding after a fold is refused", 400, "| chunked"),
            bad_fields(
                "chunked in two fields is refused",
                "Transfer-Encoding: chunked|transfer-encoding: chunked",
            ),
            bad_fields(
                "a coding after chunked is refused",
                "Transfer-Encoding: chunked|Transfer-Encoding: gzip",
            ),
            bad_fields(
                "an empty field after chunked is refused",
                "Transfer-Encoding: chunked|Transfer-Encoding:",
            ),
            bad_fields("a space before the colon is refused", "Transfer-Encoding : chunked"),
            bad_fields(
                "a length and a coding are refused",
                "Content-Length: 5|Transfer-Encoding: chunked",
            ),
            bad_fields(
                "a coding and a length are refused",
                "Transfer-Encoding: chunked|Content-Length: 5",
            ),
            bad_fields(
                "a coding and no length are refused",
                "Transfer-Encoding: chunked|Content-Length:",
            ),
            bad_fields(
                "a length of zero and a coding are refused",
                "Content-Length: 0|Transfer-Encoding: chunked",
            ),
            refused(
                "chunked in HTTP/1.0 is refused",
                400,
                "POST / HTTP/1.0|Transfer-Encoding: chunked||5|hello|0||",
            ),
            refused(
                "chunked in HTTP/1.0 that is kept alive is refused",
                400,
                "POST / HTTP/1.0|Connection: keep-alive|Transfer-Encoding: chunked||5|hello|0||",
            ),
            refused(
                "a length and a coding in HTTP/1.0 are refused",
                400,
                "POST / HTTP/1.0|Content-Length: 5|Transfer-Encoding: chunked||5|hello|0||",
            ),
        ],
    );
}

//! The vectors are those of the AWS test suite for Signature Version 4 and of the S3 reference («Examples: Signature Calculations»).

use super::*;
use http::Request;

const SUITE_SECRET: &str = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY";
const S3_SECRET: &str = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";

fn head(method: &str, uri: &str, headers: &[(&str, &str)]) -> Parts {
    let mut request = Request::builder().method(method).uri(uri);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(()).unwrap().into_parts().0
}

/// Signs as the suite does, from a request that was signed with a placeholder.
fn suite(method: &str, uri: &str, headers: &[(&str, &str)], body: &str) -> String {
    let mut names: Vec<String> = headers.iter().map(|(name, _)| name.to_lowercase()).collect();
    names.extend(["host".to_owned(), "x-amz-date".to_owned()]);
    names.sort();
    names.dedup();
    let authorization = format!(
        "AWS4-HMAC-SHA256 Credential=AKIAPLACEHOLDER/20150830/us-east-1/service/aws4_request, SignedHeaders={}, Signature=00",
        names.join(";")
    );
    let mut all = vec![("x-amz-date", "20150830T123600Z"), ("authorization", authorization.as_str())];
    all.extend_from_slice(headers);
    let mut head = head(method, uri, &all);
    let scheme = SigV4::new("AKIAPLACEHOLDER", "AKIDEXAMPLE", SUITE_SECRET);
    assert!(scheme.applies(&head));
    assert_eq!(scheme.body_need(&head), Ok(BodyNeed::Whole));
    scheme.sign(&mut head, "example.amazonaws.com", Some(body.as_bytes()), false).unwrap();
    let text = head.headers[AUTHORIZATION].to_str().unwrap();
    assert!(text.starts_with(
        "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, SignedHeaders="
    ));
    text.rsplit_once("Signature=").unwrap().1.to_owned()
}

#[test]
fn the_suite_of_aws_is_met() {
    let vanilla = "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31";
    assert_eq!(suite("GET", "/", &[], ""), vanilla);
    for path in ["//", "/./", "/example/..", "/example1/example2/../.."] {
        assert_eq!(suite("GET", path, &[], ""), vanilla, "{path}");
    }
    let ordered = "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500";
    assert_eq!(suite("GET", "/?Param2=value2&Param1=value1", &[], ""), ordered);
    assert_eq!(suite("POST", "/", &[], ""), "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b");
    let form = [("content-type", "application/x-www-form-urlencoded")];
    let signature = "ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a";
    assert_eq!(suite("POST", "/", &form, "Param1=value1"), signature);
    let multiple = [("my-header1", "value2"), ("my-header1", "value2"), ("my-header1", "value1")];
    let signature = "c9d5ea9f3f72853aea855b47ea873832890dbdd183b4468f858259531a5138ea";
    assert_eq!(suite("GET", "/", &multiple, ""), signature);
    let trimmed = [("my-header1", " value1"), ("my-header2", " \"a   b   c\"")];
    let signature = "acc3ed3afb60bb290fc8d2dd0098b9911fcaa05412b367055dee359757a9c736";
    assert_eq!(suite("GET", "/", &trimmed, ""), signature);
}

fn s3(method: &str, uri: &str, headers: &[(&str, &str)], signed: &str) -> String {
    let authorization = format!(
        "AWS4-HMAC-SHA256 Credential=AKIAPLACEHOLDER/20130524/us-east-1/s3/aws4_request,SignedHeaders={signed},Signature=00"
    );
    let mut all = vec![("x-amz-date", "20130524T000000Z"), ("authorization", authorization.as_str())];
    all.extend_from_slice(headers);
    let mut head = head(method, uri, &all);
    let scheme = SigV4::new("AKIAPLACEHOLDER", "AKIAIOSFODNN7EXAMPLE", S3_SECRET);
    assert_eq!(scheme.body_need(&head), Ok(BodyNeed::IfChanged));
    scheme.sign(&mut head, "examplebucket.s3.amazonaws.com", None, false).unwrap();
    head.headers[AUTHORIZATION].to_str().unwrap().rsplit_once("Signature=").unwrap().1.to_owned()
}

#[test]
fn the_examples_of_s3_are_met() {
    let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    let headers = [("range", "bytes=0-9"), ("x-amz-content-sha256", empty)];
    let signature = "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41";
    assert_eq!(s3("GET", "/test.txt", &headers, "host;range;x-amz-content-sha256;x-amz-date"), signature);
    let headers = [
        ("date", "Fri, 24 May 2013 00:00:00 GMT"),
        ("x-amz-storage-class", "REDUCED_REDUNDANCY"),
        ("x-amz-content-sha256", "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072"),
    ];
    let signed = "date;host;x-amz-content-sha256;x-amz-date;x-amz-storage-class";
    let signature = "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd";
    assert_eq!(s3("PUT", "/test%24file.text", &headers, signed), signature);
    let headers = [("x-amz-content-sha256", empty)];
    let signed = "host;x-amz-content-sha256;x-amz-date";
    assert_eq!(
        s3("GET", "/?lifecycle", &headers, signed),
        "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"
    );
    let signature = "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7";
    assert_eq!(s3("GET", "/?max-keys=2&prefix=J", &headers, signed), signature);
}

#[test]
fn a_presigned_url_is_signed_anew() {
    let scheme = SigV4::new("AKIAPLACEHOLDER", "AKIAIOSFODNN7EXAMPLE", S3_SECRET);
    let uri = "/test.txt?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=AKIAPLACEHOLDER%2F20130524%2Fus-east-1%2Fs3%2Faws4_request\
               &X-Amz-Date=20130524T000000Z&X-Amz-Expires=86400&X-Amz-SignedHeaders=host&X-Amz-Signature=00";
    let mut head = head("GET", uri, &[]);
    assert!(scheme.applies(&head));
    assert_eq!(scheme.body_need(&head), Ok(BodyNeed::Nothing));
    scheme.sign(&mut head, "examplebucket.s3.amazonaws.com", None, false).unwrap();
    let query = head.uri.query().unwrap();
    assert!(query.contains("X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F20130524%2Fus-east-1%2Fs3%2Faws4_request"));
    assert!(
        query.ends_with("X-Amz-Signature=aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404"),
        "{query}"
    );
}

#[test]
fn the_hash_of_a_changed_body_is_told_anew() {
    let scheme = SigV4::new("AKIAPLACEHOLDER", "AKIAIOSFODNN7EXAMPLE", S3_SECRET);
    let authorization = "AWS4-HMAC-SHA256 Credential=AKIAPLACEHOLDER/20130524/us-east-1/s3/aws4_request, \
                         SignedHeaders=host;x-amz-content-sha256;x-amz-date, Signature=00";
    let headers =
        [("x-amz-date", "20130524T000000Z"), ("authorization", authorization), ("x-amz-content-sha256", "00")];
    let mut head = head("PUT", "/x", &headers);
    scheme.sign(&mut head, "b.s3.amazonaws.com", Some(b"new"), true).unwrap();
    assert_eq!(head.headers["x-amz-content-sha256"], sha256(b"new"));
}

#[test]
fn what_cannot_be_signed_is_refused_with_its_reason() {
    let scheme = SigV4::new("AKIAPLACEHOLDER", "AKIAIOSFODNN7EXAMPLE", S3_SECRET);
    let authorization = |date: &str| {
        format!("AWS4-HMAC-SHA256 Credential=AKIAPLACEHOLDER/{date}/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=00")
    };
    let right = authorization("20130524");
    let chunked = [
        ("x-amz-date", "20130524T000000Z"),
        ("authorization", right.as_str()),
        ("x-amz-content-sha256", "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"),
    ];
    assert!(scheme.body_need(&head("PUT", "/", &chunked)).unwrap_err().contains("chunked signing"));
    assert!(scheme.body_need(&head("PUT", "/", &chunked[1..])).is_err());
    let other_day = authorization("20130525");
    assert!(scheme.body_need(&head("GET", "/", &[chunked[0], ("authorization", &other_day)])).is_err());
    let foreign = right.replace("AKIAPLACEHOLDER", "AKIASOMEONE");
    assert!(!scheme.applies(&head("GET", "/", &[chunked[0], ("authorization", &foreign)])));
}

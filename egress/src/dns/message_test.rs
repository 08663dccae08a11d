use super::*;
use crate::random_for_tests::Random;

fn asked(name: &str, kind: u16) -> Question {
    Question::parse(&query(7, name, kind)).unwrap()
}

#[test]
fn a_question_is_echoed_with_its_answer() {
    let mut message = query(7, "WWW.example", A);
    let question = Question::parse(&message).unwrap();
    assert_eq!((question.name.as_deref(), question.kind, question.class), (Some("www.example"), A, IN));
    assert_eq!(question.udp_bytes_max(), UDP_BYTES_MAX);
    let there = Ipv4Addr::new(192, 0, 2, 1);
    let answer = question.addresses(&["real.example".into()], &[there], 30, 512);
    assert!(answer[HEADER_BYTES..].starts_with(b"\x03WWW\x07example\0"));
    let response = Response::parse(&answer, 7, "www.example", A).unwrap();
    let records = vec![
        ("www.example".to_owned(), Record::Alias("real.example".into())),
        ("real.example".to_owned(), Record::Address(there)),
    ];
    assert_eq!(response, Response { code: NO_ERROR, truncated: false, records, ttl: 30 });
    // Without EDNS the bound is the old one.
    message.truncate(message.len() - 11);
    message[11] = 0;
    assert_eq!(Question::parse(&message).unwrap().udp_bytes_max(), PLAIN_UDP_BYTES);
}

#[test]
fn an_answer_that_does_not_fit_is_cut_short() {
    let question = asked("a.example", A);
    let many: Vec<Ipv4Addr> = (0..200).map(|last| Ipv4Addr::new(192, 0, 2, last)).collect();
    let short = question.addresses(&[], &many, 1, UDP_BYTES_MAX);
    assert!(short.len() <= UDP_BYTES_MAX);
    assert!(Response::parse(&short, 7, "a.example", A).unwrap().truncated);
    assert!(!Response::parse(&question.addresses(&[], &many, 1, 65_535), 7, "a.example", A).unwrap().truncated);
}

#[test]
fn an_answer_to_another_question_is_none() {
    let answer = asked("a.example", A).addresses(&[], &[Ipv4Addr::LOCALHOST], 1, 512);
    assert!(Response::parse(&answer, 7, "a.example", A).is_some());
    assert_eq!(Response::parse(&answer, 8, "a.example", A), None);
    assert_eq!(Response::parse(&answer, 7, "b.example", A), None);
    assert_eq!(Response::parse(&answer, 7, "a.example", AAAA), None);
    assert_eq!(Response::parse(&query(7, "a.example", A), 7, "a.example", A), None);
}

#[test]
fn questions_that_are_none_are_refused() {
    let good = query(7, "a.example", A);
    assert_eq!(Question::parse(&good[..8]), Err(Malformed(None)));
    let mut answer = good.clone();
    answer[2] |= 0x80;
    assert_eq!(Question::parse(&answer), Err(Malformed(None)));
    let code = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut message = good.clone();
        change(&mut message);
        match Question::parse(&message) {
            Err(Malformed(Some(answer))) => answer[3] & 0xF,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(code(&|message| message[2] = 0x28), NOT_IMPLEMENTED);
    assert_eq!(code(&|message| message[5] = 2), FORMAT_ERROR);
    assert_eq!(code(&|message| message[7] = 1), FORMAT_ERROR);
    assert_eq!(code(&|message| message.push(0)), FORMAT_ERROR);
    assert_eq!(code(&|message| message[12] = 0x40), FORMAT_ERROR);
    // A name that points at itself, and one that points back.
    assert_eq!(code(&|message| message.splice(12..14, [0xC0, 12]).for_each(drop)), FORMAT_ERROR);
    assert_eq!(code(&|message| message.splice(12..14, [0xC0, 4]).for_each(drop)), FORMAT_ERROR);
}

#[test]
fn names_of_other_than_hosts_are_kept_apart() {
    let mut message = query(7, "abc.example", A);
    message[14] = b' ';
    assert_eq!(Question::parse(&message).unwrap().name, None);
    message[14] = b'.';
    assert_eq!(Question::parse(&message).unwrap().name, None);
    assert_eq!(asked("_dmarc.example", 16).name.as_deref(), Some("_dmarc.example"));
}

#[test]
fn pointers_of_an_answer_lead_backwards_only() {
    let question = asked("a.example", A);
    let answer = question.addresses(&[], &[Ipv4Addr::LOCALHOST], 1, 512);
    let at = answer.windows(2).position(|pair| pair == POINTER_TO_QUESTION).unwrap();
    for target in [at, at + 2, 0x3fff] {
        let mut forward = answer.clone();
        forward[at..at + 2].copy_from_slice(&(0xC000 | target as u16).to_be_bytes());
        assert_eq!(Response::parse(&forward, 7, "a.example", A), None);
    }
}

#[test]
fn random_and_changed_messages_do_no_harm() {
    let mut random = Random::new(3);
    let answer = asked("www.example", A).addresses(&["b.example".into()], &[Ipv4Addr::LOCALHOST; 4], 9, 512);
    let seeds = [query(7, "www.example", A), answer];
    for round in 0..60_000 {
        let mut message = seeds[round % 2].clone();
        for _ in 0..1 + random.below(6) {
            let at = random.below(message.len());
            message[at] = random.byte();
        }
        if round % 5 == 0 {
            message.truncate(random.below(message.len()));
        }
        if let Ok(question) = Question::parse(&message) {
            assert!(question.addresses(&[], &[Ipv4Addr::LOCALHOST], 1, 512).len() <= 512);
        }
        let _ = Response::parse(&message, 7, "www.example", A);
    }
}

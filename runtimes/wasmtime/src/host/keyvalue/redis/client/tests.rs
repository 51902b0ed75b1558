use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::*;

/// What a server does with a command, which has one argument.
#[derive(Clone, Copy)]
enum Does {
    /// Returns the number 1.
    Answer,
    /// Returns the number 1, and another one that nobody has asked for.
    AnswerTwice,
    /// Closes the connection without an answer.
    Close,
}

/// A server that does this with one command after the other, and the commands with the number of the connection.
async fn server(does: &'static [Does]) -> (Client, JoinHandle<Vec<(usize, String)>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    let client = Client::new(url.parse().unwrap(), &Arc::new(Budget::new(None)));
    let serving = tokio::spawn(async move {
        let (mut commands, mut does, mut connections) = (Vec::new(), does.iter(), 0);
        while does.len() > 0 {
            let mut stream = BufReader::new(listener.accept().await.unwrap().0);
            connections += 1;
            for does in does.by_ref() {
                let mut lines = [const { String::new() }; 5];
                for line in &mut lines {
                    stream.read_line(line).await.unwrap();
                }
                commands.push((connections, lines[4].trim_end().to_owned()));
                match does {
                    Does::Answer => stream.write_all(b":1\r\n").await.unwrap(),
                    Does::AnswerTwice => {
                        stream.write_all(b":1\r\n:2\r\n").await.unwrap();
                        // Until the client closes it.
                        stream.read_line(&mut String::new()).await.unwrap();
                        break;
                    }
                    Does::Close => break,
                }
            }
        }
        commands
    });
    (client, serving)
}

/// Executes commands with these arguments; the results.
async fn execute(client: &Client, commands: &[(&str, Effect)]) -> Vec<Result<Reply, String>> {
    let mut results = Vec::new();
    for (argument, effect) in commands {
        results.push(client.execute(&[b"DO", argument.as_bytes()], *effect).await.map_err(|fault| fault.to_string()));
    }
    results
}

fn with_connection(number: usize, arguments: &[&str]) -> impl Iterator<Item = (usize, String)> {
    arguments.iter().map(move |&argument| (number, argument.to_owned())).collect::<Vec<_>>().into_iter()
}

#[tokio::test]
async fn only_what_reads_is_sent_again_when_the_connection_breaks() {
    use Does::{Answer, Close};
    let (client, serving) = server(&[Answer, Close, Answer, Close, Answer]).await;
    let commands = [("one", Effect::Read), ("two", Effect::Read), ("three", Effect::Write), ("four", Effect::Write)];
    let results = execute(&client, &commands).await;
    let broken = Err(Fault::ended().to_string());
    assert_eq!(results, [Ok(Reply::Integer(1)), Ok(Reply::Integer(1)), broken, Ok(Reply::Integer(1))]);
    let wanted = with_connection(1, &["one", "two"]).chain(with_connection(2, &["two", "three"])).chain(with_connection(3, &["four"]));
    assert_eq!(serving.await.unwrap(), wanted.collect::<Vec<_>>());
}

#[tokio::test]
async fn an_answer_too_many_is_nobodys() {
    use Does::{Answer, AnswerTwice};
    let (client, serving) = server(&[AnswerTwice, Answer]).await;
    let results = execute(&client, &[("one", Effect::Write), ("two", Effect::Write)]).await;
    assert_eq!(results, [Ok(Reply::Integer(1)), Ok(Reply::Integer(1))]);
    let wanted = with_connection(1, &["one"]).chain(with_connection(2, &["two"]));
    assert_eq!(serving.await.unwrap(), wanted.collect::<Vec<_>>());
}

#[tokio::test]
async fn what_reads_is_sent_again_once() {
    let (client, serving) = server(&[Does::Answer, Does::Close, Does::Close]).await;
    let results = execute(&client, &[("one", Effect::Read), ("two", Effect::Read)]).await;
    assert_eq!(results, [Ok(Reply::Integer(1)), Err(Fault::ended().to_string())]);
    let wanted = with_connection(1, &["one", "two"]).chain(with_connection(2, &["two"]));
    assert_eq!(serving.await.unwrap(), wanted.collect::<Vec<_>>());
}

#[tokio::test]
async fn a_command_that_is_given_up_takes_its_connection_along() {
    let (client, serving) = server(&[Does::Answer, Does::Answer, Does::Answer]).await;
    assert_eq!(execute(&client, &[("one", Effect::Write)]).await, [Ok(Reply::Integer(1))]);
    // It was sent, and its answer is still to come.
    let mut given_up = Box::pin(client.execute(&[b"DO", b"two"], Effect::Write));
    assert!(is_pending(&mut given_up).await);
    drop(given_up);
    drop(serving);
    assert_eq!(client.free.available_permits(), CONNECTIONS_MAX);
    assert!(client.idle.take(0).is_none(), "nobody reads the answer of another");
}

/// Whether a future has nothing to return when it is polled once.
async fn is_pending<T>(future: &mut (impl Future<Output = T> + Unpin)) -> bool {
    std::future::poll_fn(|context| std::task::Poll::Ready(std::pin::Pin::new(&mut *future).poll(context).is_pending())).await
}

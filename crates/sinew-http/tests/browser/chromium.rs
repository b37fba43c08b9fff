//! A headless browser, driven through the DevTools protocol.

use serde_json::{Value, json};
use std::fs;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tungstenite::{Message, WebSocket};

/// How long any step may take.
const PATIENCE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(20);

/// A browser with one page.
pub(crate) struct Chromium {
    process: Child,
    profile: PathBuf,
    socket: WebSocket<TcpStream>,
    session: Option<String>,
    calls: u64,
    /// Errors and warnings of the page.
    pub(crate) complaints: Vec<String>,
}

/// The path of an installed browser, if there is one.
pub(crate) fn installed() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let names = ["chromium", "chromium-browser"];
    let mut places =
        std::env::split_paths(&path).flat_map(|folder| names.map(|name| folder.join(name)));
    places.find(|place| place.is_file())
}

impl Chromium {
    pub(crate) fn start(program: &Path) -> Chromium {
        let profile =
            Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("chromium-{}", std::process::id()));
        fs::create_dir_all(&profile).unwrap();
        let mut process = Command::new(program)
            .args(["--headless=new", "--no-sandbox", "--remote-debugging-port=0"])
            .args(["--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"])
            .args(["--hide-scrollbars", "--window-size=1440,1100"])
            .arg(format!("--user-data-dir={}", profile.display()))
            .arg("about:blank")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let port = profile.join("DevToolsActivePort");
        let deadline = Instant::now() + PATIENCE;
        let (port, path) = loop {
            // The browser writes this file in two steps.
            let text = fs::read_to_string(&port).unwrap_or_default();
            if let Some((port, path)) = text.split_once('\n')
                && path.starts_with("/devtools/browser/")
            {
                break (port.parse::<u16>().unwrap(), path.trim().to_owned());
            }
            if let Some(status) = process.try_wait().unwrap() {
                panic!("{} has ended: {status}", program.display());
            }
            assert!(Instant::now() < deadline, "{} does not start", program.display());
            std::thread::sleep(PAUSE);
        };
        let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let url = format!("ws://127.0.0.1:{port}{path}");
        let (socket, _) = tungstenite::client(url, stream).unwrap();
        let (session, calls, complaints) = (None, 0, Vec::new());
        let mut browser = Chromium { process, profile, socket, session, calls, complaints };
        let target = browser.call("Target.createTarget", json!({"url": "about:blank"}));
        let attached = browser.call(
            "Target.attachToTarget",
            json!({"targetId": target["targetId"], "flatten": true}),
        );
        browser.session = attached["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Runtime", "Log"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        browser
    }

    /// Calls a method of the protocol, and returns its result.
    pub(crate) fn call(&mut self, method: &str, parameters: Value) -> Value {
        self.calls += 1;
        let id = self.calls;
        let mut call = json!({"id": id, "method": method, "params": parameters});
        if let Some(session) = &self.session {
            call["sessionId"] = json!(session);
        }
        self.socket.send(Message::text(call.to_string())).unwrap();
        loop {
            let message = match self.socket.read().unwrap() {
                Message::Text(text) => serde_json::from_str::<Value>(&text).unwrap(),
                _ => continue,
            };
            if message["id"] == id {
                assert!(message["error"].is_null(), "{method}: {}", message["error"]);
                return message["result"].clone();
            }
            self.note(&message);
        }
    }

    fn note(&mut self, event: &Value) {
        let parameters = &event["params"];
        let complains = match event["method"].as_str() {
            Some("Runtime.exceptionThrown") => true,
            Some("Runtime.consoleAPICalled") => {
                ["error", "warning", "assert"].iter().any(|kind| parameters["type"] == *kind)
            }
            Some("Log.entryAdded") => {
                ["error", "warning"].iter().any(|level| parameters["entry"]["level"] == *level)
            }
            // A script in a fiber's name would open a dialog.
            Some("Page.javascriptDialogOpening") => true,
            _ => false,
        };
        if complains {
            self.complaints.push(parameters.to_string());
        }
    }

    pub(crate) fn open(&mut self, url: &str) {
        let result = self.call("Page.navigate", json!({"url": url}));
        assert!(result["errorText"].is_null(), "{url}: {result}");
    }

    /// The value of an expression. Awaits a promise.
    pub(crate) fn evaluate(&mut self, expression: &str) -> Value {
        let result = self.call(
            "Runtime.evaluate",
            json!({"expression": expression, "returnByValue": true, "awaitPromise": true}),
        );
        assert!(result["exceptionDetails"].is_null(), "{expression}: {result}");
        result["result"]["value"].clone()
    }

    /// Waits until an expression is true.
    #[track_caller]
    pub(crate) fn wait_until(&mut self, expression: &str) {
        let deadline = Instant::now() + PATIENCE;
        // While the page is loading, the expression may fail.
        let guarded = format!(
            "(() => {{ try {{ return Boolean({expression}) }} catch (error) {{ return false }} }})()"
        );
        while self.evaluate(&guarded) != Value::Bool(true) {
            if Instant::now() > deadline {
                let seen = self.evaluate("document.body.innerText");
                panic!("not within {PATIENCE:?}: {expression}\n{seen}\n{:?}", self.complaints);
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// Makes the page use the light or the dark scheme.
    pub(crate) fn prefer(&mut self, scheme: &str) {
        let features = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        self.call("Emulation.setEmulatedMedia", json!({"features": features}));
    }

    /// A screenshot of the page, as a PNG and as a `data:` URL.
    pub(crate) fn screenshot(&mut self) -> (Vec<u8>, String) {
        let result = self.call("Page.captureScreenshot", json!({"format": "png"}));
        let text = result["data"].as_str().unwrap();
        let png = data_encoding::BASE64.decode(text.as_bytes()).unwrap();
        (png, format!("data:image/png;base64,{text}"))
    }
}

impl Drop for Chromium {
    fn drop(&mut self) {
        // Ask the browser to close, which ends its child processes. Killing it might leave them
        // behind.
        let close = json!({"id": self.calls + 1, "method": "Browser.close"});
        let _ = self.socket.send(Message::text(close.to_string()));
        let deadline = Instant::now() + Duration::from_secs(5);
        while matches!(self.process.try_wait(), Ok(None)) && Instant::now() < deadline {
            std::thread::sleep(PAUSE);
        }
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = fs::remove_dir_all(&self.profile);
    }
}

//! The page of `/debug/fibers`, as a browser shows it.
//!
//! Needs Chromium. Without it, the test is skipped with a note. Screenshots of the page remain in
//! the temporary folder of the build: `fibers-light.png`, `fibers-dark.png`.
#![cfg(target_os = "linux")]

mod chromium;

use chromium::Chromium;
use serde_json::{Value, json};
use sinew::sync::Mutex;
use sinew::{FiberBuilder, JoinHandle, Runtime, RuntimeHandle};
use sinew_http::debug::Access;
use sinew_http::{Router, Server, ServerHandle};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// A name that would become an element if the page inserted it as HTML.
const SCRIPT: &str = "<script>alert(1)</script><img src=x onerror=alert(2)>";

#[inline(never)]
fn waits_in_the_garden() {
    sinew::park();
}

fn garden(runtime: &RuntimeHandle) -> Vec<JoinHandle<()>> {
    let named = |name: &str, f: Box<dyn FnOnce() + Send>| {
        FiberBuilder::new().runtime(runtime).name(name).spawn(f).unwrap()
    };
    let mut fibers: Vec<_> =
        (0..700).map(|n| named(&format!("gardener {n}"), Box::new(waits_in_the_garden))).collect();
    fibers.push(named(SCRIPT, Box::new(waits_in_the_garden)));
    fibers.push(named("tulip", Box::new(waits_in_the_garden)));
    for n in 0_u64..40 {
        let naps = move || {
            loop {
                sinew::sleep(Duration::from_millis(5 + n));
            }
        };
        fibers.push(named(&format!("bee {n}"), Box::new(naps)));
    }
    let last = named("rose", Box::new(sinew::park));
    fibers.push(named("thorn", Box::new(move || drop(last.join()))));
    fibers
}

/// Two fibers that wait for each other.
fn deadlock(runtime: &RuntimeHandle) -> Vec<JoinHandle<()>> {
    let locks = [Arc::new(Mutex::new(())), Arc::new(Mutex::new(()))];
    let both = Arc::new(sinew::sync::Barrier::new(2));
    let fiber = |name: &str, first: Arc<Mutex<()>>, second: Arc<Mutex<()>>| {
        let both = both.clone();
        let waits = move || {
            let _first = first.lock();
            both.wait();
            let _second = second.lock();
        };
        FiberBuilder::new().runtime(runtime).name(name).spawn(waits).unwrap()
    };
    let [one, other] = locks;
    vec![fiber("ivy", one.clone(), other.clone()), fiber("oak", other, one)]
}

fn serve(runtime: &RuntimeHandle, address: SocketAddr) -> ServerHandle {
    let router = Router::new().debug(Access::Loopback);
    Server::bind(address).runtime(runtime).start(router).unwrap()
}

#[test]
fn the_page_shows_what_fibers_do() {
    let _watchdog = sinew_testkit::watch::watchdog(Duration::from_secs(240));
    let Some(program) = chromium::installed() else {
        note("skipped: no chromium installed (Debian: apt-get install chromium)");
        return;
    };
    let runtime = Runtime::builder().name("garden").carriers(2).measure(true).build().unwrap();
    let _fibers = garden(runtime.handle());
    let server = serve(runtime.handle(), "127.0.0.1:0".parse().unwrap());
    let address = server.local_addr();
    let mut browser = Chromium::start(&program);
    browser.open(&format!("http://{address}/debug/fibers"));

    rows_are_there(&mut browser);
    a_name_is_text(&mut browser);
    a_row_shows_its_backtrace(&mut browser);
    a_link_shows_whom_a_fiber_waits_for(&mut browser);
    the_table_is_sorted_and_paged(&mut browser);
    charts_move(&mut browser);
    let _stuck = deadlock(runtime.handle());
    a_deadlock_is_told(&mut browser);
    it_can_be_seen_by_day_and_by_night(&mut browser);
    assert!(browser.complaints.is_empty(), "{:#?}", browser.complaints);

    server.shutdown(Duration::ZERO).ok();
    browser.wait_until("!$('problem').hidden && $('live').dataset.is === 'lost'");
    let _server = serve(runtime.handle(), address);
    browser.wait_until("$('problem').hidden && $('live').dataset.is === 'live'");
}

#[expect(clippy::print_stderr, reason = "a skipped test must be visible")]
fn note(text: &str) {
    eprintln!("{text}");
}

fn rows_are_there(browser: &mut Chromium) {
    browser.wait_until("$('rows').children.length === 500");
    browser.wait_until("/^1 – 500 of 7\\d\\d$/.test($('range').textContent)");
    browser.wait_until("/garden/.test($('who').textContent)");
    browser.wait_until("document.querySelectorAll('#carriers .card').length === 2");
    browser.wait_until("$('problem').hidden && $('deadlocks').hidden");
}

fn filter(browser: &mut Chromium, text: &str) {
    let text = Value::from(text);
    browser.evaluate(&format!(
        "{{ $('filter').value = {text}; $('filter').dispatchEvent(new Event('input')); }}"
    ));
}

fn a_name_is_text(browser: &mut Chromium) {
    filter(browser, "<script>");
    browser.wait_until("$('rows').children.length === 1");
    let name = browser.evaluate("document.querySelector('#rows .name').textContent");
    assert_eq!(name, SCRIPT);
    assert_eq!(browser.evaluate("document.querySelectorAll('#rows script, #rows img').length"), 0);
}

/// Clicks the middle of an element, as a user would.
fn click(browser: &mut Chromium, selector: &str) {
    let selector = Value::from(selector);
    let place = browser.evaluate(&format!(
        "(() => {{ const node = document.querySelector({selector}); \
         node.scrollIntoView({{ block: 'center' }}); const box = node.getBoundingClientRect(); \
         return [box.x + box.width / 2, box.y + box.height / 2]; }})()"
    ));
    for kind in ["mousePressed", "mouseReleased"] {
        let event =
            json!({"type": kind, "x": place[0], "y": place[1], "button": "left", "clickCount": 1});
        browser.call("Input.dispatchMouseEvent", event);
    }
}

fn a_row_shows_its_backtrace(browser: &mut Chromium) {
    filter(browser, "tulip");
    browser.wait_until("document.querySelector('#rows .name').textContent === 'tulip'");
    click(browser, "#rows tr .name");
    browser.wait_until("!$('panel').hidden && /tulip/.test($('panel-title').textContent)");
    browser.wait_until("/waits_in_the_garden/.test($('frames').textContent)");
    browser.wait_until("/main\\.rs:\\d+/.test($('frames').textContent)");
    let few = browser.evaluate("$('frames').children.length").as_u64().unwrap();
    click(browser, "#full");
    browser.wait_until(&format!("$('frames').children.length > {few}"));
    click(browser, "#full");
    browser.wait_until(&format!("$('frames').children.length === {few}"));
    click(browser, "#close");
    browser.wait_until("$('panel').hidden");
}

fn a_link_shows_whom_a_fiber_waits_for(browser: &mut Chromium) {
    filter(browser, "thorn wait:join");
    browser.wait_until("document.querySelector('#rows .wait a').textContent === 'rose'");
    click(browser, "#rows .wait a");
    browser.wait_until("/\"rose\"/.test($('panel-title').textContent)");
    click(browser, "#close");
}

fn the_table_is_sorted_and_paged(browser: &mut Chromium) {
    filter(browser, "gardener");
    browser.wait_until("/of 700$/.test($('range').textContent)");
    click(browser, "th[data-sort=id] button");
    browser.wait_until("document.querySelector('#rows .name').textContent === 'gardener 699'");
    browser.wait_until(
        "document.querySelector('th[data-sort=id]').getAttribute('aria-sort') === 'descending'",
    );
    click(browser, "#later");
    browser.wait_until("document.querySelector('#rows .name').textContent === 'gardener 199'");
    browser.wait_until("$('rows').children.length === 200 && $('later').disabled");
    click(browser, "#legend button:first-child");
    browser.wait_until("$('rows').children.length === 0 && !$('empty').hidden");
    click(browser, "#legend button:first-child");
    filter(browser, "");
    browser.wait_until("$('rows').children.length === 500");
    click(browser, "th[data-sort=id] button");
    browser.wait_until("Number(document.querySelector('#rows td').textContent) < 100");
}

fn charts_move(browser: &mut Chromium) {
    let line = "document.querySelector('#carriers .line').getAttribute('d')";
    browser.wait_until(&format!("{line}.length > 20"));
    let before = browser.evaluate(line);
    browser.wait_until(&format!("{line} !== {before}"));
    click(browser, "#pause");
    browser.wait_until("$('live').dataset.is === 'paused' && $('pause').textContent === 'Resume'");
    click(browser, "#pause");
    browser.wait_until("$('live').dataset.is === 'live'");
}

fn a_deadlock_is_told(browser: &mut Chromium) {
    browser.wait_until(
        "!$('deadlocks').hidden && /ivy waits for oak \\(lock\\), oak waits for ivy/.test($('deadlocks').textContent)",
    );
}

fn it_can_be_seen_by_day_and_by_night(browser: &mut Chromium) {
    filter(browser, "wait:park");
    browser.wait_until("$('rows').children.length === 500");
    click(browser, "#rows tr:nth-child(3) .name");
    let wide = "document.querySelector('#rows .name').getBoundingClientRect().width > 100";
    browser.wait_until(wide);
    browser.wait_until("/waits_in_the_garden/.test($('frames').textContent)");
    // A chart needs some history.
    browser.evaluate("{ $('rate').value = '250'; $('rate').dispatchEvent(new Event('change')); }");
    browser.wait_until("[...cards.values()][0].series.get('switches').history.length > 20");
    browser.evaluate("scrollTo(0, 0)");
    let mut grounds = Vec::new();
    for scheme in ["light", "dark"] {
        browser.prefer(scheme);
        let (png, url) = browser.screenshot();
        let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("fibers-{scheme}.png"));
        std::fs::write(file, png).unwrap();
        let (colours, ground) = colours(browser, &url);
        assert!(colours > 50, "{scheme}: {colours} colours");
        grounds.push(ground);
    }
    assert!(grounds[0] > 200 && grounds[1] < 60, "{grounds:?}");
}

/// The number of colours of a picture, and the brightness of its corner.
fn colours(browser: &mut Chromium, url: &str) -> (u64, u64) {
    let counted = browser.evaluate(&format!(
        "(async () => {{
            const image = new Image();
            image.src = '{url}';
            await image.decode();
            const canvas = new OffscreenCanvas(image.width, image.height);
            const context = canvas.getContext('2d');
            context.drawImage(image, 0, 0);
            const data = new Uint32Array(
                context.getImageData(0, 0, image.width, image.height).data.buffer);
            return [new Set(data).size, data[0] & 255];
        }})()"
    ));
    (counted[0].as_u64().unwrap(), counted[1].as_u64().unwrap())
}

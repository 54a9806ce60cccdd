//! The window: hands what the user does to the viewer and what the viewer has to the screen. Thin;
//! nothing of a page is known here.
//!
//! The page is on its way before there is a window, and pixels wait for no fonts: the line below
//! comes when it is there.

use std::num::NonZeroU32;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use holdfast_page::command::WindowOrder;
use holdfast_page::{Browser, ClosedWindow, Cursor, FirstFrame, Input, Modifiers};
use softbuffer::{Context, Surface};
use winit::application::ApplicationHandler;
use winit::dpi::{PhysicalPosition, PhysicalSize};
use winit::event::{ElementState, MouseScrollDelta, WindowEvent};
use winit::event_loop::{
    ActiveEventLoop, ControlFlow, EventLoop, EventLoopProxy, OwnedDisplayHandle,
};
use winit::window::{CursorIcon, Window, WindowId};

use crate::keys;

/// Why there is no window.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WindowError {
    /// Nothing says where windows are shown.
    #[error(
        "there is no display to open a window on: set DISPLAY (X11) or WAYLAND_DISPLAY to one, or write a picture \
         instead (--png FILE)"
    )]
    NoDisplay,
    /// The display cannot be used.
    #[error(
        "the display cannot be used: {reason}; look at DISPLAY and WAYLAND_DISPLAY, or write a picture instead \
         (--png FILE)"
    )]
    Display {
        /// What was said.
        reason: String,
    },
    /// The display does not take the picture.
    #[error("cannot show a picture in the window: {reason}")]
    Draw {
        /// What was said.
        reason: String,
    },
}

fn display_error(reason: impl ToString) -> WindowError {
    WindowError::Display { reason: reason.to_string() }
}

fn draw_error(reason: impl ToString) -> WindowError {
    WindowError::Draw { reason: reason.to_string() }
}

/// Shows a page in a window until that is closed, or, if it is to close by itself, until the page is
/// on the screen.
///
/// # Errors
/// [`WindowError`]. What is wrong with a page is shown in the window.
pub(crate) fn show(order: WindowOrder) -> Result<ClosedWindow, WindowError> {
    let WindowOrder { address, view, opener, closes_after_first_frame, since } = order;
    let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    if !["DISPLAY", "WAYLAND_DISPLAY", "WAYLAND_SOCKET"].into_iter().any(is_set) {
        return Err(WindowError::NoDisplay);
    }
    let waker: Arc<OnceLock<Mutex<EventLoopProxy<()>>>> = Arc::default();
    let proxy = Arc::clone(&waker);
    let browser = Browser::new(address, view, opener, move || {
        if let Some(proxy) = proxy.get() {
            let _ = proxy.lock().unwrap_or_else(PoisonError::into_inner).send_event(());
        }
    });
    let mut app = App {
        browser,
        screen: None,
        held: Modifiers::default(),
        title: String::new(),
        cursor: Cursor::default(),
        closes_after_first_frame,
        since,
        window_at: Duration::ZERO,
        first: None,
        drawn: None,
        failure: None,
    };
    // A library of the display that is not there is a panic of the code that looks for it.
    let ran = catch_unwind(AssertUnwindSafe(|| {
        let event_loop = EventLoop::<()>::with_user_event().build().map_err(display_error)?;
        let _ = waker.set(Mutex::new(event_loop.create_proxy()));
        event_loop.set_control_flow(ControlFlow::Wait);
        event_loop.run_app(&mut app).map_err(display_error)
    }));
    // Before what is being kept is waited for: a window that answers nothing is not left standing.
    drop(app.screen.take());
    let App { browser, first, failure, .. } = app;
    let notes = browser.close();
    let words = |panic: Box<dyn std::any::Any + Send>| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("it panicked").to_owned()
    };
    ran.unwrap_or_else(|panic| Err(display_error(words(panic))))?;
    failure.map_or(Ok(ClosedWindow { first, notes }), Err)
}

/// A window with what it shows.
struct Screen {
    window: Arc<Window>,
    surface: Surface<OwnedDisplayHandle, Arc<Window>>,
}

/// A window that another one covers is never as it was drawn.
const BELIEVED_AFTER: Duration = Duration::from_secs(5);

struct App {
    browser: Browser,
    screen: Option<Screen>,
    held: Modifiers,
    title: String,
    cursor: Cursor,
    closes_after_first_frame: bool,
    since: Instant,
    window_at: Duration,
    first: Option<FirstFrame>,
    /// When what is to be the first frame was drawn first.
    drawn: Option<Instant>,
    failure: Option<WindowError>,
}

impl App {
    fn open_window(&mut self, event_loop: &ActiveEventLoop) -> Result<Screen, WindowError> {
        let (width, height) = self.browser.size();
        self.title = self.browser.title();
        let attributes = Window::default_attributes()
            .with_title(self.title.clone())
            .with_inner_size(PhysicalSize::new(width, height))
            .with_min_inner_size(PhysicalSize::new(120, 80));
        let window = Arc::new(event_loop.create_window(attributes).map_err(display_error)?);
        let context = Context::new(event_loop.owned_display_handle()).map_err(draw_error)?;
        let surface = Surface::new(&context, Arc::clone(&window)).map_err(draw_error)?;
        Ok(Screen { window, surface })
    }

    fn draw(&mut self) -> Result<(), WindowError> {
        let Some(screen) = &mut self.screen else { return Ok(()) };
        let (width, height) = self.browser.size();
        let (Some(w), Some(h)) = (NonZeroU32::new(width), NonZeroU32::new(height)) else {
            return Ok(());
        };
        screen.surface.resize(w, h).map_err(draw_error)?;
        let mut buffer = screen.surface.buffer_mut().map_err(draw_error)?;
        self.browser.compose(&mut buffer);
        let is_first = self.first.is_none() && self.browser.is_settled();
        let shown = (is_first && self.closes_after_first_frame).then(|| buffer.to_vec());
        screen.window.pre_present_notify();
        buffer.present().map_err(draw_error)?;
        if !is_first {
            return Ok(());
        }
        // A measurement wants to know that it is there; a display that cannot be asked is
        // believed.
        if let (Some(shown), Ok(there)) = (shown, screen.surface.fetch())
            && !is_alike(&there, &shown)
            && self.drawn.get_or_insert_with(Instant::now).elapsed() < BELIEVED_AFTER
        {
            screen.window.request_redraw();
            return Ok(());
        }
        if let Some((served, title)) = self.browser.shown() {
            let (window, shown) = (self.window_at, self.since.elapsed());
            self.first = Some(FirstFrame { window, shown, served, title: title.to_owned() });
        }
        Ok(())
    }

    /// Hands on what there is, both ways.
    fn exchange(&mut self, event_loop: &ActiveEventLoop) {
        // The line of a window is not read that ends by itself.
        self.browser.exchange(self.closes_after_first_frame);
        let is_shown = self.first.is_some() || self.browser.has_nothing();
        if self.browser.is_done()
            || self.failure.is_some()
            || self.closes_after_first_frame && is_shown
        {
            event_loop.exit();
            return;
        }
        let Some(screen) = &self.screen else { return };
        if self.browser.take_changed() {
            screen.window.request_redraw();
        }
        let title = self.browser.title();
        if title != self.title {
            screen.window.set_title(&title);
            self.title = title;
        }
        let cursor = self.browser.cursor();
        if cursor != self.cursor {
            screen.window.set_cursor(match cursor {
                Cursor::Arrow => CursorIcon::Default,
                Cursor::Hand => CursorIcon::Pointer,
            });
            self.cursor = cursor;
        }
    }

    fn input(&mut self, event: &WindowEvent) -> Option<Input> {
        Some(match event {
            WindowEvent::CloseRequested | WindowEvent::Destroyed => Input::Close,
            WindowEvent::Resized(PhysicalSize { width, height }) => Input::Resize(*width, *height),
            WindowEvent::ScaleFactorChanged { scale_factor, .. } => {
                Input::Scale(permille(*scale_factor))
            }
            WindowEvent::ModifiersChanged(now) => {
                self.held = keys::held(now.state());
                return None;
            }
            WindowEvent::KeyboardInput { event, .. } if event.state == ElementState::Pressed => {
                let text = event.text.as_ref().map(ToString::to_string).unwrap_or_default();
                Input::Key(keys::key(&event.logical_key)?, self.held, text)
            }
            WindowEvent::CursorMoved { position: PhysicalPosition { x, y }, .. } => {
                Input::Pointer(*x, *y)
            }
            WindowEvent::CursorLeft { .. } => Input::PointerGone,
            WindowEvent::MouseWheel { delta: MouseScrollDelta::LineDelta(x, y), .. } => {
                Input::Wheel(-f64::from(*x), -f64::from(*y))
            }
            WindowEvent::MouseWheel { delta: MouseScrollDelta::PixelDelta(by), .. } => {
                Input::Scroll(-by.x, -by.y)
            }
            WindowEvent::MouseInput { state, button, .. } => {
                let button = keys::button(*button)?;
                match state {
                    ElementState::Pressed => Input::Press(button),
                    ElementState::Released => Input::Release(button),
                }
            }
            _ => return None,
        })
    }
}

impl ApplicationHandler for App {
    fn resumed(&mut self, event_loop: &ActiveEventLoop) {
        if self.screen.is_some() {
            return;
        }
        match self.open_window(event_loop) {
            Ok(screen) => {
                self.window_at = self.since.elapsed();
                self.browser.input(Input::Scale(permille(screen.window.scale_factor())));
                let PhysicalSize { width, height } = screen.window.inner_size();
                if width > 0 && height > 0 {
                    self.browser.input(Input::Resize(width, height));
                }
                self.screen = Some(screen);
            }
            Err(error) => self.failure = Some(error),
        }
    }

    fn window_event(&mut self, _: &ActiveEventLoop, _: WindowId, event: WindowEvent) {
        if matches!(event, WindowEvent::RedrawRequested) {
            if let Err(error) = self.draw() {
                self.failure = Some(error);
            }
        } else if let Some(input) = self.input(&event) {
            self.browser.input(input);
        }
    }

    fn about_to_wait(&mut self, event_loop: &ActiveEventLoop) {
        self.exchange(event_loop);
    }
}

fn permille(factor: f64) -> u32 {
    (factor * 1000.0).round().clamp(100.0, 10_000.0) as u32
}

/// Whether the colours are the same: what else is in a pixel does not count.
fn is_alike(one: &[u32], other: &[u32]) -> bool {
    one.len() == other.len()
        && one.iter().zip(other).all(|(one, other)| (one ^ other) & 0x00ff_ffff == 0)
}

/**
 * Keeps the keyboard where it was: when what had the focus is taken away, its container gets it.
 *
 * A browser puts the focus on the page then, and whoever uses no pointer begins anew at its top.
 */
export function keepFocus(node: HTMLElement): void {
  node.tabIndex = -1;
  let held: Element | null = null;
  node.addEventListener('focusin', event => (held = event.target as Element));
  node.addEventListener('focusout', event => {
    // one that is taken away may say goodbye too, before or after it is gone
    const left = event.target as Element;
    window.setTimeout(() => {
      if (held === left && left.isConnected) {
        held = null;
      }
    }, 0);
  });
  new MutationObserver(() => {
    if (held !== null && !held.isConnected) {
      held = null;
      if (document.activeElement === document.body || document.activeElement === null) {
        node.focus({ preventScroll: true });
      }
    }
  }).observe(node, { childList: true, subtree: true });
}

/**
 * xterm colors cells by `setAttribute('style', …)` on spans, which the policy of the page forbids. From now on that sets the same by the CSSOM,
 * which the policy allows.
 */
export function installSpanStyles(): void {
  HTMLSpanElement.prototype.setAttribute = function set(this: HTMLSpanElement, name: string, value: string): void {
    if (name === 'style') this.style.cssText = value
    else Element.prototype.setAttribute.call(this, name, value)
  }
}

/** Gives the nonce of this page to each style element that a library makes, since the page's policy allows no other. */
export function installStyleNonce(): void {
  const nonce = document.querySelector<HTMLMetaElement>('meta[property="csp-nonce"]')?.nonce
  if (nonce === undefined || nonce === '') return
  const make = document.createElement.bind(document)
  document.createElement = (name: string, options?: ElementCreationOptions) => {
    const element = make(name, options)
    if (element instanceof HTMLStyleElement) element.nonce = nonce
    return element
  }
}

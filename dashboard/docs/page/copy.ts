import { element } from './element.ts'

const shownMs = 2000

/** Adds a button to each example that copies it as it is shown. Drawings have none. */
export function addCopyButtons(): void {
  for (const block of document.querySelectorAll('.code:not(.drawing)')) {
    const code = block.querySelector('code')
    if (code !== null) block.append(copyButton('Copy', () => code.textContent))
  }
}

/** A button that copies what `text` returns, and says whether it could. */
export function copyButton(label: string, text: () => string): HTMLButtonElement {
  const button = element('button', { type: 'button', className: 'copy' }, label)
  let timer: number | undefined
  const copy = async () => {
    const isCopied = await copied(text())
    button.textContent = isCopied ? 'Copied' : 'Not copied: select the text'
    clearTimeout(timer)
    timer = setTimeout(() => (button.textContent = label), shownMs)
  }
  button.addEventListener('click', () => void copy())
  // Screen readers read the changed label.
  button.setAttribute('aria-live', 'polite')
  return button
}

/** Browsers have a clipboard on https and on this machine alone; elsewhere a selection is copied. */
async function copied(text: string): Promise<boolean> {
  if (isSecureContext) {
    return await navigator.clipboard.writeText(text).then(
      () => true,
      () => false,
    )
  }
  const focused = document.activeElement
  const field = element('textarea', { value: text, readOnly: true, className: 'offscreen' })
  document.body.append(field)
  field.select()
  const isCopied = document.execCommand('copy')
  field.remove()
  if (focused instanceof HTMLElement) focused.focus({ preventScroll: true })
  return isCopied
}

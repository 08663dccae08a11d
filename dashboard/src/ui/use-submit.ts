import { useState, type FormEvent } from 'react'

/** What a form, or a button, sets off: whether it goes on, and the reason when it fails. */
export function useSubmit(work: () => Promise<unknown>): {
  /** For `onSubmit`. */
  submit: (event: FormEvent) => void
  /** Never rejects. */
  run: () => Promise<void>
  isBusy: boolean
  /** Of the newest work; undefined where it has not failed. */
  error: unknown
} {
  const [isBusy, setBusy] = useState(false)
  const [error, setError] = useState<unknown>()
  const run = async () => {
    setBusy(true)
    setError(undefined)
    try {
      await work()
    } catch (reason) {
      setError(reason)
    } finally {
      setBusy(false)
    }
  }
  const submit = (event: FormEvent) => {
    event.preventDefault()
    void run()
  }
  return { submit, run, isBusy, error }
}

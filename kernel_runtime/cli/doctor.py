"""`krt doctor`: what is wrong with this installation, and how to mend it."""

from __future__ import annotations

import msgspec

from kernel_runtime.cli import frame, report

_MARKS = {"ok": "ok", "warning": "!", "failed": "FAILED"}


@frame.command("doctor", example="krt doctor")
def command(*, as_json: bool, principal: str | None) -> int:
    """Check Python, packages, directories, kernelspecs and every session. Changes nothing.

    Exits 4 if something has failed; warnings alone exit 0.
    """
    from kernel_runtime.cli.diagnosis import examine

    findings = examine(principal)
    failed = any(finding.level == "failed" for finding in findings)
    if as_json:
        report.emit({"ok": not failed, "checks": msgspec.to_builtins(findings)})
        return 4 if failed else 0
    for finding in findings:
        print(report.clean(f"{_MARKS[finding.level]:>6}  {finding.check}: {finding.found}"))
        if finding.mend:
            print(report.clean(f"        mend: {finding.mend}"))
    troubles = sum(finding.level != "ok" for finding in findings)
    print(f"{troubles} of {len(findings)} checks need a look" if troubles else "nothing is wrong")
    return 4 if failed else 0

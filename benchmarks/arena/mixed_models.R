# Fit a regression with local intercepts; `mixed_models.py` runs this script.
#
#     Rscript mixed_models.R PACKAGE FAMILY FOLDER y x1 x2 … group
#
# FOLDER has the rows, as doubles, row by row. The estimates are written there: means, then sds, of
# fixed effects, of sds of effects (sds of their logarithms) and of the groups' effects.

arguments <- commandArgs(trailingOnly = TRUE)
package <- arguments[1]
family <- arguments[2]
folder <- arguments[3]
columns <- arguments[-(1:3)]
suppressPackageStartupMessages(library(package, character.only = TRUE))

path <- file.path(folder, "rows.bin")
values <- readBin(path, "double", file.size(path) / 8)
rows <- as.data.frame(matrix(values, ncol = length(columns), byrow = TRUE))
names(rows) <- columns
rows$group <- factor(rows$group)
covariates <- columns[startsWith(columns, "x")]
formula <- as.formula(paste("y ~", paste(covariates, collapse = " + "), "+ (1 | group)"))
is_binary <- family == "binomial"

begin <- proc.time()[["elapsed"]]
if (package == "lme4") {
  # the optimizer that lmer has by default is faster than glmer's own
  control <- glmerControl(optimizer = "nloptwrap")
  fit <- if (is_binary) glmer(formula, rows, binomial, control) else lmer(formula, rows)
  fixed <- cbind(fixef(fit), sqrt(diag(as.matrix(vcov(fit)))))
  effects <- ranef(fit, condVar = TRUE)$group
  effects <- cbind(effects[[1]], sqrt(attr(effects, "postVar")[1, 1, ]))
  spreads <- cbind(c(attr(VarCorr(fit)$group, "stddev"), sigma(fit)), NA)
} else {
  fit <- glmmTMB(formula, rows, family = if (is_binary) binomial() else gaussian())
  fixed <- cbind(fixef(fit)$cond, sqrt(diag(vcov(fit)$cond)))
  effects <- ranef(fit, condVar = TRUE)$cond$group
  effects <- cbind(effects[[1]], sqrt(attr(effects, "condVar")[1, 1, ]))
  estimates <- summary(fit$sdr, "fixed")
  tau <- estimates[rownames(estimates) == "theta", ]
  spreads <- rbind(c(exp(tau[[1]]), tau[[2]]))
  if (!is_binary) {
    # the parameter is the log of the residual variance in older versions, of the sd in newer ones
    residual <- estimates[startsWith(rownames(estimates), "beta") & rownames(estimates) != "beta", ]
    spreads <- rbind(spreads, c(sigma(fit), residual[[2]] * log(sigma(fit)) / residual[[1]]))
  }
}
seconds <- proc.time()[["elapsed"]] - begin

for (name in c("fixed", "spreads", "effects")) {
  writeBin(as.vector(as.matrix(get(name))), file.path(folder, paste0(name, ".bin")))
}
writeLines(
  sprintf(
    '{"seconds": %.3f, "version": "%s", "r": "%s"}',
    seconds, as.character(packageVersion(package)), as.character(getRversion())
  ),
  file.path(folder, "record.json")
)
